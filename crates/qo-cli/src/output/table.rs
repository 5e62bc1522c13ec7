//! Tables with aligned columns, fitted to the width of the terminal.
//!
//! A column is as wide as its widest cell. If the table is too wide, flexible columns shrink first, starting with the widest. Then
//! optional columns are dropped, and then flexible columns shrink further. Other columns, such as ids, are never truncated.

use anstyle::Style;

use super::style::{BOLD, Paint};
use super::text::{clean, cut, width};

/// The gap between two columns.
const GAP: &str = "  ";
/// Minimum width of a flexible column before and after optional columns are dropped.
const FLEXIBLE_MIN: usize = 16;
const FLEXIBLE_LEAST: usize = 6;

/// A cell: text and style.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// A cell without style. Control characters are replaced.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self::styled(text, Style::new())
    }

    /// A cell as wide as one whose text begins with a mark and a space.
    pub fn indented(text: impl AsRef<str>) -> Self {
        let cell = Self::new(text);
        Self {
            text: format!("  {}", cell.text),
            ..cell
        }
    }

    /// A cell with a style.
    pub fn styled(text: impl AsRef<str>, style: Style) -> Self {
        Self {
            text: clean(text.as_ref()),
            style,
        }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Left,
    Right,
    Flexible,
}

/// A table with a line of headings.
#[derive(Debug, Clone, Default)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Debug, Clone, Copy)]
struct Column {
    heading: &'static str,
    layout: Layout,
    is_optional: bool,
}

impl Table {
    /// A table without columns.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a column.
    #[must_use]
    pub fn column(self, heading: &'static str) -> Self {
        self.push(heading, Layout::Left)
    }

    /// Adds a column of numbers.
    #[must_use]
    pub fn number(self, heading: &'static str) -> Self {
        self.push(heading, Layout::Right)
    }

    /// Adds a column that is truncated if the table is too wide.
    #[must_use]
    pub fn flexible(self, heading: &'static str) -> Self {
        self.push(heading, Layout::Flexible)
    }

    /// Allows the last column to be dropped if the table is too wide.
    #[must_use]
    pub fn optional(mut self) -> Self {
        if let Some(column) = self.columns.last_mut() {
            column.is_optional = true;
        }
        self
    }

    fn push(mut self, heading: &'static str, layout: Layout) -> Self {
        self.columns.push(Column {
            heading,
            layout,
            is_optional: false,
        });
        self
    }

    /// Adds a row, with a cell for each column.
    pub fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders the table. Empty columns are omitted.
    pub fn render(&self, paint: Paint, columns_max: Option<usize>) -> String {
        let mut shown: Vec<usize> = (0..self.columns.len())
            .filter(|index| {
                let mut rows = self.rows.iter();
                self.rows.is_empty() || rows.any(|row| !row[*index].text.is_empty())
            })
            .collect();
        let mut widths = self.widths(&shown, FLEXIBLE_MIN, columns_max);
        while !fits(&widths, columns_max) {
            let optional = shown
                .iter()
                .position(|index| self.columns[*index].is_optional);
            let Some(optional) = optional else {
                widths = self.widths(&shown, FLEXIBLE_LEAST, columns_max);
                break;
            };
            shown.remove(optional);
            widths = self.widths(&shown, FLEXIBLE_MIN, columns_max);
        }
        let mut text = String::new();
        let headings: Vec<Cell> = self
            .columns
            .iter()
            .map(|column| Cell::styled(column.heading, BOLD))
            .collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            let mut pending_spaces = 0;
            for (position, (&index, &column_width)) in shown.iter().zip(&widths).enumerate() {
                let cell = &row[index];
                let words = cut(&cell.text, column_width);
                let padding = column_width - width(&words);
                if position > 0 {
                    pending_spaces += GAP.len();
                }
                let (before, after) = match self.columns[index].layout {
                    Layout::Right => (padding, 0),
                    Layout::Left | Layout::Flexible => (0, padding),
                };
                if words.is_empty() {
                    pending_spaces += padding;
                    continue;
                }
                // Spaces are written only before text, so no line ends in spaces.
                line.push_str(&" ".repeat(pending_spaces + before));
                line.push_str(&paint.paint(cell.style, &words));
                pending_spaces = after;
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    fn widths(
        &self,
        shown: &[usize],
        flexible_min: usize,
        columns_max: Option<usize>,
    ) -> Vec<usize> {
        let mut widths: Vec<usize> = shown
            .iter()
            .map(|&index| {
                let cells = self.rows.iter().map(|row| width(&row[index].text));
                cells.fold(width(self.columns[index].heading), usize::max)
            })
            .collect();
        let Some(columns_max) = columns_max else {
            return widths;
        };
        let mut excess = total(&widths).saturating_sub(columns_max);
        while excess > 0 {
            let flexible = (0..shown.len())
                .filter(|&position| self.columns[shown[position]].layout == Layout::Flexible)
                .filter(|&position| widths[position] > flexible_min)
                .max_by_key(|&position| widths[position]);
            let Some(widest) = flexible else {
                break;
            };
            widths[widest] -= 1;
            excess -= 1;
        }
        widths
    }
}

/// Total width of the columns and gaps.
fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1)
}

fn fits(widths: &[usize], columns_max: Option<usize>) -> bool {
    columns_max.is_none_or(|columns_max| total(widths) <= columns_max)
}

#[cfg(test)]
mod tests {
    use super::super::style::RED;
    use super::*;

    fn table() -> Table {
        let mut table = Table::new()
            .column("ID")
            .number("N")
            .column("EMPTY")
            .flexible("ERROR");
        table.row(vec![
            "a".into(),
            "1".into(),
            "".into(),
            Cell::styled("something went very wrong", RED),
        ]);
        table.row(vec!["bbb".into(), "22".into(), "".into(), "".into()]);
        table
    }

    #[test]
    fn columns_are_aligned_and_empty_ones_are_omitted() {
        let text = table().render(Paint { on: false }, None);
        assert_eq!(
            text,
            "ID    N  ERROR\na     1  something went very wrong\nbbb  22\n"
        );
    }

    #[test]
    fn only_flexible_columns_are_truncated() {
        let text = table().render(Paint { on: false }, Some(24));
        assert_eq!(text, "ID    N  ERROR\na     1  something went…\nbbb  22\n");
        let text = table().render(Paint { on: false }, Some(3));
        assert!(text.contains("bbb") && text.contains("somet…"), "{text}");
    }

    #[test]
    fn optional_columns_are_dropped_before_flexible_ones_become_too_narrow() {
        let mut table = Table::new()
            .column("ID")
            .column("AGE")
            .optional()
            .flexible("ERROR");
        table.row(vec![
            "0123456789".into(),
            "3 s ago".into(),
            "something went very wrong".into(),
        ]);
        let shown = |columns| table.render(Paint { on: false }, Some(columns));
        assert!(
            shown(40).contains("3 s ago  something went ver…"),
            "{}",
            shown(40)
        );
        assert_eq!(
            shown(30),
            "ID          ERROR\n0123456789  something went ve…\n"
        );
        assert_eq!(shown(18), "ID          ERROR\n0123456789  somet…\n");
    }

    #[test]
    fn colours_do_not_change_the_width() {
        let plain = table().render(Paint { on: false }, None);
        let painted = table().render(Paint { on: true }, None);
        let stripped: String = painted
            .replace("\u{1b}[31m", "")
            .replace("\u{1b}[1m", "")
            .replace("\u{1b}[0m", "");
        assert_ne!(plain, painted);
        assert_eq!(plain, stripped);
    }

    #[test]
    fn a_table_without_rows_has_its_headings() {
        let text = Table::new()
            .column("A")
            .column("B")
            .render(Paint::default(), None);
        assert_eq!(text, "A  B\n");
    }
}
