//! What a real API server would refuse, as data and in its own words.
//!
//! Implements: Kubernetes `field.Error` and how a `Status` renders a list of them. The rendering of values
//! changed in v1.34 (Go syntax before, JSON since), which is why a problem carries its value already printed.

use std::fmt;

use crate::field_path::FieldPath;

/// Why a field is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are upstream's own")]
pub enum ProblemKind {
    Required,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    Duplicate,
    NotFound,
}

impl ProblemKind {
    /// The words an error begins with.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
        }
    }

    /// `reason` of an entry in `details.causes`.
    #[must_use]
    pub const fn cause_reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
        }
    }
}

/// One refused field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Why.
    pub kind: ProblemKind,
    /// Where the field really is.
    pub at: FieldPath,
    /// What upstream calls the place, where that differs from the truth (`spec.template.annotations[..]`).
    pub called: Option<String>,
    /// The refused value, printed; `None` for the kinds that print none.
    pub value: Option<String>,
    /// What is wrong with it; may be empty.
    pub detail: String,
}

impl Problem {
    /// A field that must be set.
    #[must_use]
    pub fn required(at: FieldPath, detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::Required, at, None, detail.into())
    }

    /// A field that must not be set, or not so.
    #[must_use]
    pub fn forbidden(at: FieldPath, detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::Forbidden, at, None, detail.into())
    }

    /// A value that does not do; `value` is already printed.
    #[must_use]
    pub fn invalid(at: FieldPath, value: impl fmt::Display, detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::Invalid, at, Some(value.to_string()), detail.into())
    }

    /// A value outside a fixed list; `value` is already printed, `supported` is printed in the given order.
    #[must_use]
    pub fn not_supported(at: FieldPath, value: impl fmt::Display, supported: &[&str]) -> Self {
        let list = supported.iter().map(|item| format!("\"{item}\"")).collect::<Vec<_>>().join(", ");
        Self::new(ProblemKind::NotSupported, at, Some(value.to_string()), format!("supported values: {list}"))
    }

    /// A value that exists already.
    #[must_use]
    pub fn duplicate(at: FieldPath, value: impl fmt::Display) -> Self {
        Self::new(ProblemKind::Duplicate, at, Some(value.to_string()), String::new())
    }

    /// A value that is too long; never printed.
    #[must_use]
    pub fn too_long(at: FieldPath, detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::TooLong, at, None, detail.into())
    }

    fn new(kind: ProblemKind, at: FieldPath, value: Option<String>, detail: String) -> Self {
        Self { kind, at, called: None, value, detail }
    }

    /// The same problem under upstream's name for the place.
    #[must_use]
    pub fn called(mut self, name: impl Into<String>) -> Self {
        self.called = Some(name.into());
        self
    }

    /// `field` of the cause.
    #[must_use]
    pub fn field(&self) -> String {
        self.called.clone().unwrap_or_else(|| self.at.to_string())
    }

    /// `message` of the cause: everything after the field.
    #[must_use]
    pub fn body(&self) -> String {
        let mut body = self.kind.text().to_owned();
        for part in [self.value.as_deref(), Some(self.detail.as_str())].into_iter().flatten() {
            if !part.is_empty() {
                body.push_str(": ");
                body.push_str(part);
            }
        }
        body
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field();
        if field.is_empty() { f.write_str(&self.body()) } else { write!(f, "{field}: {}", self.body()) }
    }
}

/// How a list of problems is told: one stands bare, several in brackets, repeated texts once.
#[must_use]
pub fn aggregate<T: fmt::Display>(problems: &[T]) -> String {
    let mut texts: Vec<String> = Vec::with_capacity(problems.len());
    for problem in problems {
        let text = problem.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", texts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Problem, aggregate};
    use crate::{field_path::FieldPath, quote::Quoted};

    #[test]
    fn renders_as_upstream() {
        let at = FieldPath::of(&["spec", "x"]);
        for (problem, expected) in [
            (Problem::required(at.clone(), "why"), "spec.x: Required value: why"),
            (Problem::invalid(at.clone(), Quoted("v"), "why"), "spec.x: Invalid value: \"v\": why"),
            (
                Problem::not_supported(at.clone(), Quoted("v"), &["a", "b"]),
                "spec.x: Unsupported value: \"v\": supported values: \"a\", \"b\"",
            ),
            (Problem::duplicate(at.clone(), Quoted("v")), "spec.x: Duplicate value: \"v\""),
            (Problem::forbidden(FieldPath::root(), "no"), "Forbidden: no"),
            (Problem::forbidden(at.clone(), "no").called("y"), "y: Forbidden: no"),
        ] {
            assert_eq!(problem.to_string(), expected);
        }
    }

    #[test]
    fn several_problems_stand_in_brackets_and_repeat_nothing() {
        let problem = |detail: &str| Problem::forbidden(FieldPath::of(&["f"]), detail);
        assert_eq!(aggregate(&[problem("a"), problem("a")]), "f: Forbidden: a");
        assert_eq!(aggregate(&[problem("a"), problem("b")]), "[f: Forbidden: a, f: Forbidden: b]");
    }
}
