//! Results whose error is a text: it drops the facts behind the sentence, and callers compare words.
//!
//! Every `Result<_, String>` in the sources of a crate is a finding, in signatures, fields, closures and aliases alike. An error is
//! an enum of its module that carries the facts and renders the sentence. Tests are left alone.

use syn::{
    GenericArgument, Item, PathArguments, PathSegment, Type,
    spanned::Spanned as _,
    visit::{self, Visit},
};

/// Whether a file is of the sources of a crate.
pub(crate) fn is_source(name: &str) -> bool {
    name.starts_with("crates/") && name.contains("/src/")
}

/// The findings in the text of a file, as `<name>:<line> …`.
pub(crate) fn findings(name: &str, text: &str) -> Vec<String> {
    let file = match syn::parse_file(text) {
        Ok(file) => file,
        Err(error) => return vec![format!("{name} is not Rust: {error}")],
    };
    let mut finder = Finder::default();
    finder.visit_file(&file);
    let sentence = |line| format!("{name}:{line} has a text as an error: make it an enum of the module");
    finder.lines.into_iter().map(sentence).collect()
}

#[derive(Default)]
struct Finder {
    lines: Vec<usize>,
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item(&mut self, item: &'ast Item) {
        if !crate::swallowed::is_test_item(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_path_segment(&mut self, segment: &'ast PathSegment) {
        if segment.ident == "Result"
            && let PathArguments::AngleBracketed(arguments) = &segment.arguments
            && let Some(GenericArgument::Type(error)) = arguments.args.iter().nth(1)
            && is_text(error)
        {
            self.lines.push(segment.span().start().line);
        }
        visit::visit_path_segment(self, segment);
    }
}

fn is_text(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "String"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_texts_as_errors() {
        for (case, text, expected) in [
            ("function", "fn f() -> Result<(), String> { Ok(()) }", 1),
            ("path", "fn f() -> std::result::Result<u8, std::string::String> { Ok(1) }", 1),
            ("alias", "type Read = Result<u8, String>;", 1),
            ("field", "struct S { read: Result<u8, String> }", 1),
            ("closure", "fn f() { let g = |x: u8| -> Result<u8, String> { Ok(x) }; }", 1),
            ("bound", "fn f(g: impl Fn() -> Result<(), String>) {}", 1),
            ("enum", "fn f() -> Result<String, ReadError> { g() }", 0),
            ("texts", "fn f() -> Result<Vec<String>, ReadError> { g() }", 0),
            ("tests", "#[cfg(test)]\nmod tests { fn f() -> Result<(), String> { Ok(()) } }", 0),
        ] {
            assert_eq!(findings("f.rs", text).len(), expected, "{case}");
        }
    }
}
