//! Every text of the program that a person may see, by file, so that a rewording is reviewed in one place: `tests/data/texts.txt`.
//!
//! Texts are the string literals of the crates' sources that read as words: messages, log lines, reasons, events and conditions. Help
//! texts are in `docs/commands.md`, and texts of manifests in the manifests themselves. Tests are left alone.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, Item, LitStr, Macro,
    visit::{self, Visit},
};
use walkdir::WalkDir;

use crate::{Failure, string_errors, swallowed};

/// The texts of a checkout.
pub(crate) fn catalogue(root: &Path) -> Result<String, Failure> {
    let mut files = BTreeMap::new();
    for entry in WalkDir::new(root.join("crates")).sort_by_file_name() {
        let path = entry.map_err(|error| Failure(error.to_string()))?.into_path();
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        let is_test = name.ends_with("_tests.rs") || name.ends_with("/tests.rs") || name.contains("testkit");
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        if !is_rust || !string_errors::is_source(&name) || is_test {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(|error| Failure(format!("{name}: {error}")))?;
        let texts = texts(&text).map_err(|error| Failure(format!("{name} is not Rust: {error}")))?;
        if !texts.is_empty() {
            files.insert(name, texts);
        }
    }
    let mut catalogue = "Texts of the program, by file. Made by `cargo xtask gen`.\n".to_owned();
    for (name, texts) in files {
        let _ = write!(catalogue, "\n{name}\n");
        for text in texts {
            let _ = writeln!(catalogue, "  {}", text.replace('\n', "\\n"));
        }
    }
    Ok(catalogue)
}

/// The texts of a file, in their order, each once.
fn texts(file: &str) -> syn::Result<Vec<String>> {
    let mut finder = Finder::default();
    finder.visit_file(&syn::parse_file(file)?);
    Ok(finder.texts)
}

#[derive(Default)]
struct Finder {
    texts: Vec<String>,
}

impl Finder {
    fn add(&mut self, literal: &LitStr) {
        let text = literal.value();
        if reads_as_words(&text) && !self.texts.contains(&text) {
            self.texts.push(text);
        }
    }

    fn add_tokens(&mut self, tokens: &TokenStream) {
        for token in tokens.clone() {
            match token {
                TokenTree::Group(group) => self.add_tokens(&group.stream()),
                TokenTree::Literal(literal) => {
                    if let Ok(literal) = syn::parse2::<LitStr>(TokenTree::Literal(literal).into()) {
                        self.add(&literal);
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item(&mut self, item: &'ast Item) {
        if !swallowed::is_test_item(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_lit_str(&mut self, literal: &'ast LitStr) {
        self.add(literal);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        self.add_tokens(&called.tokens);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let path = attribute.path();
        if path.is_ident("error")
            && let Ok(list) = attribute.meta.require_list()
        {
            self.add_tokens(&list.tokens);
        }
    }
}

/// Two words beside each other, and nothing that programs read.
fn reads_as_words(text: &str) -> bool {
    let is_word = |word: &str| {
        let word = word.trim_matches(|c: char| ",.:;\"'()`".contains(c));
        word.len() > 1 && word.chars().all(|c| c.is_ascii_alphabetic() || c == '-' || c == '\'')
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_sentence = words.windows(2).any(|pair| pair.iter().all(|word| is_word(word)));
    is_sentence && !text.trim_start().starts_with('<') && !text.contains("\":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_a_person_reads() {
        for (case, file, expected) in [
            ("expression", r#"fn f() -> &'static str { "no such pod" }"#, &["no such pod"][..]),
            ("macro", r#"fn f() { println!("{} has no pod", 1); }"#, &["{} has no pod"]),
            ("error", r#"enum E { #[error("pod {0} is gone")] Gone(u8) }"#, &["pod {0} is gone"]),
            ("documentation", "/// The pod of it.\nstruct Pod;", &[]),
            ("key", r#"const K: &str = "metadata.name";"#, &[]),
            ("JSON", r#"const J: &str = "{\"kind\": \"two words\"}";"#, &[]),
            ("twice", r#"const A: [&str; 2] = ["a pod is there", "a pod is there"];"#, &["a pod is there"]),
            ("test", r#"#[cfg(test)] mod tests { const A: &str = "a pod is there"; }"#, &[]),
        ] {
            assert_eq!(texts(file).unwrap(), expected, "{case}");
        }
    }
}
