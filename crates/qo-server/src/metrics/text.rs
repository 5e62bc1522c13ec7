//! Prometheus's text format, version 0.0.4.

use std::fmt::{Display, Write};

#[derive(Debug, Default)]
pub(crate) struct PrometheusText {
    text: String,
}

impl PrometheusText {
    pub(crate) fn gauge(&mut self, name: &str, help: &str) {
        self.head(name, help, "gauge");
    }

    pub(crate) fn counter(&mut self, name: &str, help: &str) {
        self.head(name, help, "counter");
    }

    pub(crate) fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing into a string does not fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let opening = if index == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{opening}{label}=\"");
            for character in text.chars() {
                match character {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    other => self.text.push(other),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = PrometheusText::default();
        text.sample("m", &[("a", "x\"y\\z\n"), ("b", "")], 1.5);
        text.sample("m", &[], 2);
        assert_eq!(text.finish(), "m{a=\"x\\\"y\\\\z\\n\",b=\"\"} 1.5\nm 2\n");
    }
}
