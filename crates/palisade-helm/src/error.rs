//! Why a chart cannot be rendered.

use std::rc::Rc;

use thiserror::Error;

use crate::parse::{Range, SyntaxError};

/// What went wrong in a template.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TemplateErrorKind {
    /// The text is not a template.
    #[error("{0}")]
    Syntax(#[from] SyntaxError),
    /// It is not UTF-8: Go's templates take it, and what they make of it is not known here.
    #[error("the template is not UTF-8")]
    NotText,
    /// A function that Helm has and this engine does not, or nobody has.
    #[error("the function {0:?} is not supported")]
    UnknownFunction(String),
    /// A template that is not defined.
    #[error("template {0:?} is not defined")]
    UnknownTemplate(String),
    /// The chart itself refuses these values: `fail` or `required`.
    #[error("the chart fails: {0}")]
    Fail(String),
    /// A function that was given something else than it takes.
    #[error("{function}: {problem}")]
    Call {
        /// The function.
        function: String,
        /// What is wrong.
        problem: String,
    },
    /// A field of nothing.
    #[error("nil pointer evaluating .{0}")]
    NilField(String),
    /// A field of something that has none.
    #[error("cannot evaluate field {field} in a {kind}")]
    NoField {
        /// The field.
        field: String,
        /// What it was looked up in.
        kind: &'static str,
    },
    /// More work, output or nesting than any chart needs.
    #[error("rendering takes more than {0}")]
    Limit(&'static str),
}

/// What went wrong, and where.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) kind: Box<TemplateErrorKind>,
    /// The template and the action, once they are known.
    pub(crate) at: Option<(u32, Range)>,
}

impl From<TemplateErrorKind> for Failed {
    fn from(kind: TemplateErrorKind) -> Self {
        Self { kind: Box::new(kind), at: None }
    }
}

impl Failed {
    pub(crate) fn call(function: &str, problem: impl Into<String>) -> Self {
        TemplateErrorKind::Call { function: function.to_owned(), problem: problem.into() }.into()
    }

    pub(crate) fn located(mut self, file: u32, span: Range) -> Self {
        self.at.get_or_insert((file, span));
        self
    }
}

/// The name of a template and its text, for the table of files.
#[derive(Clone, Debug)]
pub(crate) struct NamedText {
    pub(crate) name: Rc<str>,
    pub(crate) text: Rc<str>,
}
