//! SPDX licence expressions, as crates state them in their manifests.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

/// A parsed expression.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Expression {
    /// A licence, with its exception if it has one: `MIT`, `Apache-2.0 WITH LLVM-exception`.
    Licence(String),
    /// All of these apply.
    All(Vec<Self>),
    /// The user may choose one of these.
    Any(Vec<Self>),
}

impl Expression {
    /// Parses an expression. A slash means `OR`, as in manifests from before SPDX.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let spaced = text
            .replace('/', " OR ")
            .replace('(', " ( ")
            .replace(')', " ) ");
        let mut words = Words {
            words: spaced.split_whitespace().collect(),
            next: 0,
        };
        let expression = words.any()?;
        match words.take() {
            None => Ok(expression),
            Some(word) => bail!("unexpected {word:?}"),
        }
    }

    /// Whether the allowed licences satisfy the expression.
    pub(super) fn is_satisfied_by(&self, allowed: &BTreeSet<String>) -> bool {
        match self {
            Self::Licence(name) => allowed.contains(name),
            Self::All(parts) => parts.iter().all(|part| part.is_satisfied_by(allowed)),
            Self::Any(parts) => parts.iter().any(|part| part.is_satisfied_by(allowed)),
        }
    }
}

/// The words that are still to be parsed.
struct Words<'a> {
    words: Vec<&'a str>,
    next: usize,
}

impl<'a> Words<'a> {
    fn take(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.next).copied();
        self.next += 1;
        word
    }

    fn take_if(&mut self, expected: &str) -> bool {
        let matches = self.words.get(self.next) == Some(&expected);
        self.next += usize::from(matches);
        matches
    }

    fn any(&mut self) -> Result<Expression> {
        let mut parts = vec![self.all()?];
        while self.take_if("OR") {
            parts.push(self.all()?);
        }
        Ok(single_or(parts, Expression::Any))
    }

    fn all(&mut self) -> Result<Expression> {
        let mut parts = vec![self.one()?];
        while self.take_if("AND") {
            parts.push(self.one()?);
        }
        Ok(single_or(parts, Expression::All))
    }

    fn one(&mut self) -> Result<Expression> {
        if self.take_if("(") {
            let inner = self.any()?;
            if !self.take_if(")") {
                bail!("a closing parenthesis is missing");
            }
            return Ok(inner);
        }
        let licence = self.name()?;
        if self.take_if("WITH") {
            let exception = self.name()?;
            return Ok(Expression::Licence(format!("{licence} WITH {exception}")));
        }
        Ok(Expression::Licence(licence.to_owned()))
    }

    fn name(&mut self) -> Result<&'a str> {
        match self.take() {
            Some(word) if !matches!(word, "OR" | "AND" | "WITH" | "(" | ")") => Ok(word),
            Some(word) => bail!("expected a licence before {word:?}"),
            None => bail!("expected a licence at the end"),
        }
    }
}

fn single_or(mut parts: Vec<Expression>, combine: fn(Vec<Expression>) -> Expression) -> Expression {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            combine(parts)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(text: &str) -> bool {
        let allowed = ["MIT", "Apache-2.0", "BSD-3-Clause"].map(str::to_owned);
        let expression = Expression::parse(text).unwrap();
        expression.is_satisfied_by(&allowed.into_iter().collect())
    }

    #[test]
    fn one_allowed_alternative_is_enough() {
        assert!(is_allowed("MIT"));
        assert!(is_allowed("GPL-3.0-only OR MIT"));
        assert!(is_allowed("Unlicense/MIT"));
        assert!(is_allowed("Apache-2.0 / GPL-2.0-only"));
        assert!(!is_allowed("GPL-3.0-only"));
        assert!(!is_allowed("GPL-3.0-only OR AGPL-3.0-only"));
    }

    #[test]
    fn every_part_of_a_conjunction_has_to_be_allowed() {
        assert!(is_allowed("MIT AND BSD-3-Clause"));
        assert!(!is_allowed("MIT AND OpenSSL"));
        assert!(is_allowed("(MIT OR GPL-2.0-only) AND Apache-2.0"));
        assert!(!is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
    }

    #[test]
    fn and_binds_more_tightly_than_or() {
        assert!(is_allowed("MIT OR Apache-2.0 AND OpenSSL"));
        assert!(!is_allowed("(MIT OR Apache-2.0) AND OpenSSL"));
    }

    #[test]
    fn a_licence_with_an_exception_is_a_licence_of_its_own() {
        assert!(!is_allowed("Apache-2.0 WITH LLVM-exception"));
        assert!(is_allowed("Apache-2.0 WITH LLVM-exception OR MIT"));
    }

    #[test]
    fn malformed_expressions_are_refused() {
        for text in [
            "",
            "MIT OR",
            "OR MIT",
            "MIT Apache-2.0",
            "(MIT",
            "MIT)",
            "MIT WITH",
            "()",
        ] {
            assert!(Expression::parse(text).is_err(), "{text:?}");
        }
    }
}
