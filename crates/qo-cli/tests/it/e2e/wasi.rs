//! WASI jobs through the real command: uploaded by content, run in a sandbox, and their output fetched by its address.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use qo_blob::{BlobAddress, BlobStore, BlobStoreExt as _, address_of};
use rustix::process::Signal;
use serde_json::json;

use super::cli::TestCli;

/// The imports of all programs, with helpers.
const PRELUDE: &str = r#"
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 1024) "hello\n")
  (data (i32.const 2048) "started")
  (func $write (param $file i32) (param $buffer i32) (param $length i32)
    (i32.store (i32.const 0) (local.get $buffer))
    (i32.store (i32.const 4) (local.get $length))
    (if (call $fd_write (local.get $file) (i32.const 0) (i32.const 1) (i32.const 8)) (then unreachable)))
"#;

/// Copies standard input to standard output.
const CAT: &str = r#"(func (export "_start")
  (loop $more
    (i32.store (i32.const 0) (i32.const 4096))
    (i32.store (i32.const 4) (i32.const 16384))
    (if (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)) (then unreachable))
    (if (i32.load (i32.const 8)) (then
      (call $write (i32.const 1) (i32.const 4096) (i32.load (i32.const 8)))
      (br $more)))))"#;

/// Creates the file `started` in the granted directory and then never ends. If the file exists, writes `hello` and ends.
const HANGS_ONCE: &str = r#"(func (export "_start")
  (if (call $path_open (i32.const 3) (i32.const 0) (i32.const 2048) (i32.const 7)
        (i32.const 5) (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 12))
    (then (call $write (i32.const 1) (i32.const 1024) (i32.const 6)))
    (else (loop $for_ever (br $for_ever)))))"#;

/// Writes to both streams and exits with code 3.
const FAILS: &str = r#"(func (export "_start")
  (call $write (i32.const 1) (i32.const 1024) (i32.const 6))
  (call $write (i32.const 2) (i32.const 2048) (i32.const 7))
  (call $exit (i32.const 3)))"#;

impl TestCli {
    /// Compiles a program into a file.
    fn program(&self, name: &str, code: &str) {
        let binary = wat::parse_str(format!("(module {PRELUDE} {code})")).unwrap();
        fs::write(self.file(name), binary).unwrap();
    }

    fn submit_program(&self, name: &str, more: &[&str]) -> String {
        let mut arguments = vec!["submit", "--wasi", name];
        arguments.extend(more);
        self.ok(arguments).trim().to_owned()
    }

    /// `qo run` with this standard input.
    fn run_program(&self, words: &[&str], input: &[u8]) -> Output {
        let file = self.file("stdin");
        fs::write(&file, input).unwrap();
        let mut command = self.command(["run"].iter().chain(words));
        command.stdin(Stdio::from(fs::File::open(file).unwrap()));
        command.output().unwrap()
    }

    /// Fetches a blob by its address.
    fn blob(&self, address: &str) -> Vec<u8> {
        let address = address.parse().unwrap();
        let read =
            async |blobs: Arc<dyn BlobStore>| blobs.read_all(address, u64::MAX).await.unwrap();
        self.with_blobs(read).to_vec()
    }

    fn with_blobs<T>(&self, act: impl AsyncFnOnce(Arc<dyn BlobStore>) -> T) -> T {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let queue = self.connection().open().await.unwrap();
            act(queue.blobs().unwrap()).await
        })
    }
}

/// Bytes that are not text, and more than fit into a pipe.
fn sample() -> Vec<u8> {
    let mut state = 1_u32;
    let bytes = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    });
    bytes.take(700_000).collect()
}

fn output_and_exit_code_come_back(cli: &TestCli) {
    let _worker = cli.worker("w-1", &["--wasi"]);
    let bytes = sample();
    fs::write(cli.file("input"), &bytes).unwrap();
    cli.program("cat.wasm", CAT);
    let id = cli.submit_program("cat.wasm", &["--stdin", "input"]);
    let task = cli.wait_for(&id, "completed");
    assert_eq!(task["task_type"], "wasi");
    // The same bytes have the same address.
    let address = address_of(&bytes).to_string();
    assert_eq!(
        task["output"],
        json!({ "output_addr": address, "exit_code": 0 })
    );
    assert!(cli.blob(&address) == bytes);

    let copied = cli.run_program(&["cat.wasm"], &bytes);
    assert!(copied.status.success(), "{copied:?}");
    assert!(copied.stdout == bytes);
    let empty = cli.run_program(&["cat.wasm"], b"");
    assert!(
        empty.status.success() && empty.stdout.is_empty(),
        "{empty:?}"
    );
    // The program is stored, so its address is enough.
    let program = address_of(&fs::read(cli.file("cat.wasm")).unwrap()).to_string();
    let again = cli.run_program(&[&program], b"again");
    assert_eq!(again.stdout, b"again", "{again:?}");

    cli.program("fails.wasm", FAILS);
    let failed = cli.run_program(&["fails.wasm"], b"");
    assert_eq!(failed.status.code(), Some(3), "{failed:?}");
    assert_eq!(failed.stdout, b"hello\n");
    let errors = String::from_utf8(failed.stderr).unwrap();
    assert!(
        errors.contains("started") && errors.contains("exited with code 3"),
        "{errors}"
    );
}

fn another_worker_finishes_the_job_of_a_killed_one(cli: &TestCli) {
    let folder = cli.file("");
    let grant = format!("{}::/data", folder.display());
    let flags = ["--wasi", "--wasi-dir", &grant];
    cli.program("hangs.wasm", HANGS_ONCE);
    let mut first = cli.worker("w-1", &flags);
    let id = cli.submit_program("hangs.wasm", &["--retry-initial", "50ms"]);
    cli.wait_for_file("started");
    first.signal(Signal::KILL);
    assert!(!first.wait().success());

    let _second = cli.worker("w-2", &flags);
    let done = cli.wait_for(&id, "completed");
    assert_eq!(done["attempt"], 2);
    let address = done["output"]["output_addr"].as_str().unwrap();
    assert_eq!(cli.blob(address), b"hello\n");
}

mod end_to_end {
    use super::output_and_exit_code_come_back;
    on_both_stores!(output_and_exit_code_come_back);
}

mod killed_worker {
    use super::another_worker_finishes_the_job_of_a_killed_one;
    on_both_stores!(another_worker_finishes_the_job_of_a_killed_one);
}

/// Overwrites a blob, as a faulty disk would.
fn damage(cli: &TestCli, bytes: &[u8]) {
    use futures_util::TryStreamExt as _;
    use qo::store::object_store::ObjectStoreExt as _;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = cli.connection().open_store().unwrap();
        let objects: Vec<_> = store.objects.list(None).try_collect().await.unwrap();
        let mut damaged = 0;
        for object in objects {
            let read = store.objects.get(&object.location).await.unwrap();
            if read.bytes().await.unwrap() == bytes {
                let mut other = bytes.to_vec();
                other[0] ^= 1;
                store
                    .objects
                    .put(&object.location, other.into())
                    .await
                    .unwrap();
                damaged += 1;
            }
        }
        assert_eq!(damaged, 1, "the blob is one object");
    });
}

/// Every hostile or broken job fails with a clear message, and the one worker lives on.
#[test]
fn hostile_jobs_fail_clearly_and_the_worker_lives_on() {
    let cli = TestCli::sqlite();
    let limits = ["--wasi-memory", "16MiB", "--wasi-output", "1MiB"];
    let mut worker = cli.worker("w-1", &[&["--wasi"], &limits[..]].concat());
    let once = ["--retries", "0"];
    let raw = |binary: &BlobAddress| {
        let input = json!({ "binary_addr": binary }).to_string();
        cli.submit("wasi", &input, &once)
    };
    let program = |name: &str, code: &str, more: &[&str]| {
        cli.program(name, code);
        cli.submit_program(name, &[&once, more].concat())
    };
    let upload = |bytes: &[u8]| {
        let bytes = Bytes::copy_from_slice(bytes);
        let store = async |blobs: Arc<dyn BlobStore>| blobs.put_bytes(bytes).await.unwrap();
        cli.with_blobs(store).address
    };
    let component = |exports: &str| wat::parse_str(format!("(component {exports})")).unwrap();

    fs::write(cli.file("input"), sample()).unwrap();
    let damaged_input = program("reads.wasm", CAT, &["--stdin", "input", "--delay", "1s"]);
    damage(&cli, &sample());
    let expected: Vec<(String, &str)> = vec![
        (damaged_input, "is damaged"),
        (
            program("trap.wasm", r#"(func (export "_start") unreachable)"#, &[]),
            "the program trapped: wasm `unreachable`",
        ),
        (
            program(
                "spin.wasm",
                r#"(func (export "_start") (loop $for_ever (br $for_ever)))"#,
                &["--timeout", "1s"],
            ),
            "timed out",
        ),
        (
            program(
                "bomb.wasm",
                r#"(func (export "_start")
                (loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable)"#,
                &[],
            ),
            "memory limit of 16777216 bytes",
        ),
        (
            program(
                "flood.wasm",
                r#"(func (export "_start")
                (loop $more (call $write (i32.const 1) (i32.const 0) (i32.const 65536)) (br $more)))"#,
                &[],
            ),
            "more than 1048576 bytes to standard output",
        ),
        (raw(&upload(b"no program")), "is not a WebAssembly binary"),
        (
            raw(&upload(
                &wat::parse_str(r#"(module (func (export "_initialize")))"#).unwrap(),
            )),
            "is a reactor",
        ),
        (raw(&upload(&component(""))), "a component without exports"),
        (raw(&address_of(b"never uploaded")), "there is no blob"),
        (cli.submit("wasi", "{}", &once), "not a WASI job"),
    ];
    for (id, message) in &expected {
        let failed = cli.wait_for(id, "failed");
        let error = failed["last_error"].as_str().unwrap();
        assert!(error.contains(message), "{message}: {failed:#}");
    }
    let healthy = cli.run_program(&["reads.wasm"], b"still here");
    assert_eq!(healthy.stdout, b"still here", "{healthy:?}");
    worker.signal(Signal::TERM);
    assert!(worker.wait().success());
}

#[test]
fn a_file_that_is_no_program_is_not_uploaded() {
    let cli = TestCli::sqlite();
    fs::write(cli.file("notes.txt"), "hello").unwrap();
    let refused = cli.run(["run", "notes.txt"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert!(
        errors.contains("not a WebAssembly binary") && errors.contains("wasm32-wasip1"),
        "{errors}"
    );
    assert!(cli.tasks().is_empty());
    let unknown = cli.run(["run", &"0".repeat(64)]);
    assert_eq!(unknown.status.code(), Some(3), "{unknown:?}");
}

/// Compiles an example: for WASI if the compiler has the target, otherwise for this machine.
struct Example {
    file: PathBuf,
    is_wasi: bool,
}

impl Example {
    fn compile(cli: &TestCli, name: &str) -> Self {
        const TARGET: &str = "wasm32-wasip1";
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let rustc = || {
            let mut rustc = Command::new("rustc");
            rustc.current_dir(&root);
            rustc
        };
        let sysroot = rustc().args(["--print", "sysroot"]).output().unwrap();
        let sysroot = String::from_utf8(sysroot.stdout).unwrap();
        let libraries = Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET);
        let is_wasi = libraries.join("lib").exists();
        let file = cli.file(&format!("{name}.wasm"));
        let mut compile = rustc();
        compile.args(["--edition", "2024", "-O", "-o"]).arg(&file);
        compile.arg(format!("examples/wasi/src/bin/{name}.rs"));
        if is_wasi {
            compile.args(["--target", TARGET]);
        } else {
            eprintln!("{TARGET} is not installed: {name} is tested as a program of this machine");
        }
        assert!(compile.status().unwrap().success());
        Self { file, is_wasi }
    }

    fn run(&self, cli: &TestCli, arguments: &[&str], input: &[u8]) -> Output {
        if self.is_wasi {
            let words = [&[self.file.to_str().unwrap()], arguments].concat();
            return cli.run_program(&words, input);
        }
        let mut child = Command::new(&self.file)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program that ignores its input may have ended.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }
}

#[test]
fn the_examples_run() {
    let cli = TestCli::sqlite();
    let [wordcount, thumbnail, primes] =
        ["wordcount", "thumbnail", "primes"].map(|name| Example::compile(&cli, name));
    let _worker = cli.worker("w-1", &["--wasi"]);
    let text = |output: Output| {
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let counts = wordcount.run(&cli, &["2"], b"the cat and the dog and the bird");
    assert_eq!(text(counts), "       3  the\n       2  and\n");
    // Squares of these numbers do not fit into 32 bits.
    let primes = primes.run(&cli, &["100000"], b"");
    assert_eq!(
        text(primes),
        "9592 primes up to 100000, the largest is 99991\n"
    );

    let mut image = b"P6\n4 2\n255\n".to_vec();
    image.extend([0, 0, 0, 255, 255, 255].repeat(4));
    let small = thumbnail.run(&cli, &["2"], &image);
    assert!(small.status.success(), "{small:?}");
    assert_eq!(small.stdout, [&b"P6\n2 1\n255\n"[..], &[127; 6]].concat());
    let bad = thumbnail.run(&cli, &[], b"GIF89a");
    assert_eq!(bad.status.code(), Some(65), "{bad:?}");
}

/// A program reaches the peer that its worker grants. Another worker, without the grant, refuses the same program.
#[test]
fn a_program_connects_only_to_a_granted_peer() {
    let cli = TestCli::sqlite();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let port = server.local_addr().unwrap().port().to_string();
    let text = include_str!("../../../../qo-wasi/tests/it/connect.wat").replace("PORT", &port);
    fs::write(cli.file("connect.wasm"), wat::parse_str(text).unwrap()).unwrap();
    let exit_code = |grant: &[&str]| {
        let mut worker = cli.worker("w-1", &[&["--wasi"], grant].concat());
        let run = cli.run_program(&["connect.wasm"], b"");
        worker.signal(Signal::TERM);
        assert!(worker.wait().success());
        run.status.code()
    };
    assert_eq!(exit_code(&[]), Some(1));
    assert_eq!(exit_code(&["--wasi-net=127.0.0.1:1"]), Some(1));
    assert!(server.accept().is_err());
    assert_eq!(
        exit_code(&[&format!("--wasi-net=127.0.0.1:{port}")]),
        Some(0)
    );
    assert!(server.accept().is_ok());
    assert_eq!(exit_code(&["--wasi-net"]), Some(0));
    assert!(server.accept().is_ok());
}

#[test]
fn settings_are_checked_before_the_worker_starts() {
    let cli = TestCli::sqlite();
    let refused = |words: &[&str]| {
        let output = cli.run(["worker", "--wasi"].iter().chain(words));
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["--wasi-dir", "/a"]).contains("HOST::GUEST"));
    assert!(refused(&["--wasi-dir", "/no/such::/a"]).contains("not a directory"));
    let message = refused(&["--wasi-env", "secret"]);
    assert!(
        message.contains("NAME=VALUE") && !message.contains("secret"),
        "{message}"
    );
    assert!(refused(&["--wasi-net=db"]).contains("HOST:PORT"));
    assert!(refused(&["--wasi-memory", "9TiB"]).contains("up to 4GiB"));
}
