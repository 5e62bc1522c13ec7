//! Scales an image in binary PPM down, by the average of the pixels that each new pixel covers.

use std::io::{self, Read, Write};
use std::process::ExitCode;

/// An image with three bytes per pixel.
struct Image {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

fn main() -> ExitCode {
    let side = match std::env::args().nth(1).map(|text| text.parse::<usize>()) {
        None => 128,
        Some(Ok(side)) if side > 0 => side,
        Some(_) => {
            eprintln!("usage: thumbnail [SIDE]");
            return ExitCode::from(64);
        }
    };
    let mut bytes = Vec::new();
    if let Err(error) = io::stdin().lock().read_to_end(&mut bytes) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    let Some(image) = parse(&bytes) else {
        eprintln!("the input is not an image in binary PPM (P6) with 8 bits per colour");
        return ExitCode::from(65);
    };
    let small = scale(&image, side);
    let mut output = io::stdout().lock();
    let written = write!(output, "P6\n{} {}\n255\n", small.width, small.height)
        .and_then(|()| output.write_all(&small.pixels));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Reads an image: `P6`, width, height and 255, with white space and comments between them, one white space, and the pixels.
fn parse(bytes: &[u8]) -> Option<Image> {
    let mut rest = bytes.strip_prefix(b"P6")?;
    let mut numbers = [0; 3];
    for number in &mut numbers {
        loop {
            match rest.first()? {
                byte if byte.is_ascii_whitespace() => rest = &rest[1..],
                b'#' => {
                    let end = rest.iter().position(|byte| *byte == b'\n')?;
                    rest = &rest[end..];
                }
                _ => break,
            }
        }
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        *number = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
        rest = &rest[digits..];
    }
    let [width, height, maximum]: [usize; 3] = numbers;
    let pixels = rest.get(1..)?;
    let expected = width.checked_mul(height)?.checked_mul(3)?;
    let is_valid = maximum == 255 && width > 0 && height > 0 && pixels.len() >= expected;
    is_valid.then(|| Image {
        width,
        height,
        pixels: pixels[..expected].to_vec(),
    })
}

fn scale(image: &Image, side: usize) -> Image {
    let longest = image.width.max(image.height);
    if longest <= side {
        return Image {
            width: image.width,
            height: image.height,
            pixels: image.pixels.clone(),
        };
    }
    let width = (image.width * side / longest).max(1);
    let height = (image.height * side / longest).max(1);
    let mut pixels = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        let rows = y * image.height / height..((y + 1) * image.height / height);
        for x in 0..width {
            let columns = x * image.width / width..((x + 1) * image.width / width);
            let mut sums = [0_u64; 3];
            for row in rows.clone() {
                for column in columns.clone() {
                    let start = (row * image.width + column) * 3;
                    for (sum, value) in sums.iter_mut().zip(&image.pixels[start..start + 3]) {
                        *sum += u64::from(*value);
                    }
                }
            }
            let covered = (rows.len() * columns.len()) as u64;
            pixels.extend(sums.map(|sum| (sum / covered) as u8));
        }
    }
    Image {
        width,
        height,
        pixels,
    }
}
