//! Failed reads that are not reported: a judge that cannot read something must reject it with a reason.
//!
//! In judging code these are findings, unless a comment `// swallowed: <reason>` stands before them in the statement, match arm
//! or field they are part of, on their line, or on the line before that statement:
//!
//! - `.ok()` and `Result::ok`: turn the failure into "there is nothing";
//! - `.unwrap_or_default()`, `.unwrap_or(…)`, `.unwrap_or_else(…)`, `.map_or(…)`, `.map_or_else(…)`, `.is_ok_and(…)`, `.is_ok()` and
//!   `.into_iter()`-like uses right after a call that reads (`from_str`, `deserialize`, `parse`, …);
//! - `.flat_map(…)` and `.filter_map(…)` of a closure whose value is such a call;
//! - `let Ok(…) = … else { … }`, `if let Ok(…) = …` and `while let Ok(…) = …` whose other branch is missing or returns no error, also
//!   with the `Ok` inside another pattern, and `matches!(…, Ok(…))`;
//! - a match arm `Err(_) => …`, or `_ => …` beside an arm for `Ok(…)`, that returns no error.
//!
//! Types are not known here, so calls that read are known by their names. Tests are left alone.

use std::collections::BTreeSet;

use proc_macro2::Span;
use syn::{
    Arm, Attribute, Expr, ExprIf, ExprLet, ExprMatch, ExprMethodCall, ExprPath, ExprWhile, FieldValue, Item,
    Local, Macro, Pat, Stmt,
    spanned::Spanned as _,
    visit::{self, Visit},
};

/// Where things are judged.
const JUDGING: &[&str] = &[
    "crates/palisade-model/src/",
    "crates/palisade-policy/src/",
    "crates/palisade-admission/src/",
    "crates/palisade-webhook/src/answer.rs",
    "crates/palisade-webhook/src/calls.rs",
    "crates/palisade-webhook/src/configuration.rs",
    "crates/palisade-webhook/src/facts/",
    "crates/palisade-webhook/src/http/routes.rs",
    "crates/palisade-webhook/src/http/timeout.rs",
    "crates/palisade-apiserver/src/verbs/",
    "crates/palisade-apiserver/src/pod_security/",
    "crates/palisade-apiserver/src/openshift/",
    "crates/palisade-apiserver/src/plugins/",
    "crates/palisade-apiserver/src/subresources/",
    "crates/palisade-apiserver/src/storage/",
    "crates/palisade-controllers/src/cluster/",
    "crates/palisade-node/src/kernel/process.rs",
    "crates/palisade-node/src/profiles/",
    "crates/palisade-node/src/verify.rs",
    "crates/palisade-registry/src/",
    "crates/palisade-cli/src/commands/verify.rs",
];

/// Calls that read something and may fail.
const READS: &[&str] = &[
    "decode",
    "decode_value",
    "deserialize",
    "from_reader",
    "from_slice",
    "from_str",
    "from_utf8",
    "from_value",
    "object_from_str",
    "object_value",
    "old_object_value",
    "old_pod",
    "parse",
    "pod_or_template",
    "read",
    "read_pod",
    "read_template",
    "read_to_string",
    "template_from_str",
    "to_value",
    "value_from_str",
];

/// Calls that turn a failure into a value.
const SWALLOWS: &[&str] =
    &["is_ok", "is_ok_and", "map_or", "map_or_else", "unwrap_or", "unwrap_or_default", "unwrap_or_else"];

/// Calls that leave a result a result.
const THROUGH: &[&str] = &[
    "and_then",
    "as_deref",
    "as_ref",
    "await",
    "copied",
    "cloned",
    "flatten",
    "inspect_err",
    "map",
    "map_err",
];

const MARKER: &str = "// swallowed: ";

/// Whether a file is judging code.
pub(crate) fn is_judging(name: &str) -> bool {
    JUDGING.iter().any(|folder| name.starts_with(folder))
}

/// The findings in the text of a file, as `<name>:<line> …`.
pub(crate) fn findings(name: &str, text: &str) -> Vec<String> {
    let file = match syn::parse_file(text) {
        Ok(file) => file,
        Err(error) => return vec![format!("{name} is not Rust: {error}")],
    };
    let mut finder = Finder { found: BTreeSet::new(), part: 1 };
    finder.visit_file(&file);
    let lines: Vec<&str> = text.lines().collect();
    let excused = |first: usize, last: usize| {
        (first.saturating_sub(1)..=last).filter(|line| *line > 0).any(|line| {
            let reason = lines.get(line - 1).and_then(|text| text.split_once(MARKER));
            reason.is_some_and(|(_, reason)| !reason.trim().is_empty())
        })
    };
    let found = finder.found.into_iter().filter(|(part, line, _)| !excused(*part, *line));
    found.map(|(_, line, what)| format!("{name}:{line} swallows a failed read: {what}")).collect()
}

struct Finder {
    /// First line of the part it is in, its own line, and what is there.
    found: BTreeSet<(usize, usize, &'static str)>,
    /// First line of the innermost statement, match arm or field.
    part: usize,
}

impl Finder {
    fn add(&mut self, at: Span, what: &'static str) {
        self.found.insert((self.part, at.start().line, what));
    }

    fn part<T>(&mut self, at: Span, node: &T, visit: impl FnOnce(&mut Self, &T)) {
        let outer = std::mem::replace(&mut self.part, at.start().line);
        visit(self, node);
        self.part = outer;
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test_item(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let name = call.method.to_string();
        let at = call.method.span();
        if name == "ok" && call.args.is_empty() {
            self.add(at, ".ok()");
        } else if let Some(name) = SWALLOWS.iter().find(|known| **known == name)
            && reads(&call.receiver)
            && !call.args.iter().any(mentions_error)
        {
            self.add(at, name);
        } else if ["filter_map", "flat_map"].contains(&name.as_str()) && call.args.iter().any(is_reader) {
            self.add(at, "a list without the entries that cannot be read");
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_path(&mut self, path: &'ast ExprPath) {
        let mut names = path.path.segments.iter().rev().map(|segment| segment.ident.to_string());
        if names.next().as_deref() == Some("ok") && names.next().as_deref() == Some("Result") {
            self.add(path.span(), "Result::ok");
        }
        visit::visit_expr_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        let is_matches = item.path.segments.last().is_some_and(|segment| segment.ident == "matches");
        if is_matches
            && item.tokens.to_string().split(|c: char| !c.is_alphanumeric()).any(|word| word == "Ok")
        {
            self.add(item.span(), "matches!(…, Ok(…))");
        }
        visit::visit_macro(self, item);
    }

    fn visit_expr_while(&mut self, repeated: &'ast ExprWhile) {
        let mut lets = Lets(Vec::new());
        lets.visit_expr(&repeated.cond);
        for span in lets.0 {
            self.add(span, "while let Ok(…)");
        }
        visit::visit_expr_while(self, repeated);
    }

    fn visit_expr_match(&mut self, decision: &'ast ExprMatch) {
        let arms = &decision.arms;
        let has_error = arms.iter().any(|arm| is_pattern_of(&arm.pat, "Err"));
        if !has_error && arms.iter().any(|arm| is_pattern_of(&arm.pat, "Ok")) {
            for arm in arms.iter().filter(|arm| matches!(arm.pat, Pat::Wild(_)) && !mentions_error(&arm.body))
            {
                self.part(arm.span(), arm, |finder, arm| finder.add(arm.pat.span(), "_ => … beside Ok(…)"));
            }
        }
        visit::visit_expr_match(self, decision);
    }

    fn visit_local(&mut self, local: &'ast Local) {
        if let (true, Some(init)) = (is_ok_pattern(&local.pat), &local.init)
            && let Some((_, other)) = &init.diverge
            && !mentions_error(other)
        {
            self.add(local.span(), "let Ok(…) = … else");
        }
        visit::visit_local(self, local);
    }

    fn visit_expr_if(&mut self, condition: &'ast ExprIf) {
        let reported = condition.else_branch.as_ref().is_some_and(|(_, other)| mentions_error(other));
        if !reported {
            let mut lets = Lets(Vec::new());
            lets.visit_expr(&condition.cond);
            for span in lets.0 {
                self.add(span, "if let Ok(…)");
            }
        }
        visit::visit_expr_if(self, condition);
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        self.part(arm.span(), arm, |finder, arm| {
            if is_ignored_error(&arm.pat) && !mentions_error(&arm.body) {
                finder.add(arm.pat.span(), "Err(_) => …");
            }
        });
        self.part(arm.span(), &arm, |finder, arm| visit::visit_arm(finder, arm));
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        self.part(statement.span(), &statement, |finder, statement| visit::visit_stmt(finder, statement));
    }

    fn visit_field_value(&mut self, field: &'ast FieldValue) {
        self.part(field.span(), &field, |finder, field| visit::visit_field_value(finder, field));
    }
}

/// Conditions of the form `let Ok(…) = …`.
struct Lets(Vec<Span>);

impl<'ast> Visit<'ast> for Lets {
    fn visit_expr_let(&mut self, condition: &'ast ExprLet) {
        if is_ok_pattern(&condition.pat) {
            self.0.push(condition.span());
        }
    }
}

/// Whether an item is compiled for tests only.
pub(crate) fn is_test_item(item: &Item) -> bool {
    let attributes: &[Attribute] = match item {
        Item::Mod(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        _ => &[],
    };
    attributes.iter().any(is_test)
}

fn is_test(attribute: &Attribute) -> bool {
    let text = attribute.meta.path().segments.last().map(|segment| segment.ident.to_string());
    match text.as_deref() {
        Some("test") => true,
        Some("cfg") => attribute.meta.require_list().is_ok_and(|list| {
            list.tokens.to_string().split(|c: char| !c.is_alphanumeric()).any(|w| w == "test")
        }),
        _ => false,
    }
}

fn last_segment(pattern: &Pat) -> Option<(String, &Pat)> {
    let Pat::TupleStruct(pattern) = pattern else { return None };
    let name = pattern.path.segments.last()?.ident.to_string();
    Some((name, pattern.elems.first()?))
}

fn is_ok_pattern(pattern: &Pat) -> bool {
    is_pattern_of(pattern, "Ok")
}

/// Whether a pattern has this variant, at its top or inside.
fn is_pattern_of(pattern: &Pat, variant: &str) -> bool {
    match pattern {
        Pat::Or(cases) => cases.cases.iter().any(|case| is_pattern_of(case, variant)),
        Pat::Tuple(parts) => parts.elems.iter().any(|part| is_pattern_of(part, variant)),
        Pat::Reference(inner) => is_pattern_of(&inner.pat, variant),
        other => {
            last_segment(other).is_some_and(|(name, inner)| name == variant || is_pattern_of(inner, variant))
        }
    }
}

/// Whether a closure or function reads something: its failures would be left out of a list.
fn is_reader(argument: &Expr) -> bool {
    match argument {
        Expr::Closure(closure) => reads(&closure.body),
        Expr::Path(path) => path
            .path
            .segments
            .last()
            .is_some_and(|segment| READS.contains(&segment.ident.to_string().as_str())),
        _ => false,
    }
}

fn is_ignored_error(pattern: &Pat) -> bool {
    match pattern {
        Pat::Or(cases) => cases.cases.iter().any(is_ignored_error),
        Pat::Tuple(parts) => parts.elems.iter().any(is_ignored_error),
        other => {
            last_segment(other).is_some_and(|(name, inner)| name == "Err" && matches!(inner, Pat::Wild(_)))
        }
    }
}

/// Whether the value of an expression is the result of a call that reads.
fn reads(expression: &Expr) -> bool {
    match expression {
        Expr::MethodCall(call) => {
            let name = call.method.to_string();
            // A lock is read as well, without arguments.
            let read = READS.contains(&name.as_str()) && (name != "read" || !call.args.is_empty());
            read || (THROUGH.contains(&name.as_str()) && reads(&call.receiver))
        }
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => path
                .path
                .segments
                .last()
                .is_some_and(|segment| READS.contains(&segment.ident.to_string().as_str())),
            _ => false,
        },
        Expr::Await(inner) => reads(&inner.base),
        Expr::Paren(inner) => reads(&inner.expr),
        Expr::Reference(inner) => reads(&inner.expr),
        _ => false,
    }
}

/// Whether a branch returns an error, or rejects with a reason.
fn mentions_error(expression: &Expr) -> bool {
    struct Errors(bool);
    impl<'ast> Visit<'ast> for Errors {
        fn visit_ident(&mut self, name: &'ast syn::Ident) {
            let name = name.to_string();
            let reports = ["Err", "ok_or", "panic", "unreachable"].contains(&name.as_str());
            let words =
                ["error", "refus", "reject", "forbid", "unreadable", "invalid", "problem", "fail", "unknown"];
            let lower = name.to_lowercase();
            self.0 |= reports || words.iter().any(|word| lower.contains(word));
        }
        fn visit_macro(&mut self, item: &'ast Macro) {
            if let Some(segment) = item.path.segments.last() {
                self.visit_ident(&segment.ident);
            }
        }
        fn visit_stmt(&mut self, statement: &'ast Stmt) {
            visit::visit_stmt(self, statement);
        }
    }
    let mut errors = Errors(false);
    errors.visit_expr(expression);
    errors.0
}

#[cfg(test)]
mod tests {
    use super::{JUDGING, findings, is_judging};

    fn found(body: &str) -> usize {
        findings("f.rs", &format!("fn f() -> T {{\n{body}\n}}")).len()
    }

    #[test]
    fn finds_failures_that_become_values() {
        for body in [
            "let a = read(x).ok();",
            "let a = serde_json::from_str::<T>(x).unwrap_or_default();",
            "let a = T::deserialize(x).map(f).unwrap_or(U);",
            "let a = serde_json::from_slice(x).map_or(0, f);",
            "let a = text.parse::<u8>().unwrap_or_else(|_| 7);",
            "let a = from_str::<T>(x).is_ok_and(|a| a.b);",
            "let Ok(a) = read(x) else { return T::default() };",
            "let Ok(Some(a)) = read(x) else { return };",
            "if let Ok(a) = read(x) { use_it(a) }",
            "if b && let Ok(a) = read(x) { use_it(a) } else { other() }",
            "match read(x) { Ok(a) => a, Err(_) => T::default() }",
            "match (read(x), y) { (Ok(a), _) => a, (Err(_), _) => T::default() }",
            "let a = list.iter().map(read).filter_map(Result::ok);",
            "let a = list.iter().filter_map(|x| from_value(x));",
            "let a = list.iter().flat_map(|x| read(x).map(f));",
            "let a = list.iter().flat_map(serde_json::from_value);",
            "let a = x.map(read).and_then(std::result::Result::ok);",
            "let Some(Ok(a)) = x.map(read) else { return };",
            "if let Some(Ok(a)) = x.map(read) { use_it(a) }",
            "if let (Ok(a), b) = (read(x), y) { use_it(a) }",
            "while let Ok(a) = read(x) { use_it(a) }",
            "let a = matches!(read(x), Ok(true));",
            "match read(x) { Ok(a) => a, _ => T::default() }",
            "match x.map(read) { Some(Ok(a)) => a, None => T::default(), _ => T::default() }",
        ] {
            assert_eq!(found(body), 1, "{body}");
        }
    }

    #[test]
    fn leaves_alone_what_reports_the_failure() {
        for body in [
            "let a = read(x)?;",
            "let a = object.as_str().unwrap_or_default();",
            "let a = read(x).map_err(f)?.unwrap_or_default();",
            "let a = read(x).unwrap_or_else(|error| report(error));",
            "let a = lock.read().unwrap_or_else(PoisonError::into_inner);",
            "let Ok(a) = read(x) else { return Err(\"no\") };",
            "let Ok(a) = read(x) else { return request.forbidden(\"no\") };",
            "let Some(a) = find(x) else { return };",
            "if let Ok(a) = read(x) { a } else { return Err(y) }",
            "match read(x) { Ok(a) => a, Err(_) => return Err(y) }",
            "match read(x) { Ok(a) => a, Err(error) => log(error) }",
            "match read(x) { Ok(a) => a, _ => return Err(y) }",
            "match read(x) { Ok(None) => a, Ok(Some(_)) => b, Err(error) => log(error) }",
            "let a = list.iter().filter_map(|x| x.get(1));",
            "let a = matches!(x, Some(true));",
            "let a = read(x).ok(); // swallowed: a hint only",
            "// swallowed: the next reader rejects it\nlet a = read(x).ok();",
            "let a = read(x)\n    .map(f) // swallowed: a hint only\n    .ok();",
        ] {
            assert_eq!(found(body), 0, "{body}");
        }
        assert_eq!(found("let a = read(x).ok(); // swallowed: "), 1, "a reason is needed");
        assert_eq!(findings("f.rs", "#[cfg(test)]\nmod tests { fn f() { read(x).ok(); } }").len(), 0);
        assert_eq!(findings("f.rs", "#[test]\nfn f() { read(x).ok(); }").len(), 0);
    }

    #[test]
    fn names_the_line() {
        let text = "fn f() {\n    let a = read(x)\n        .map(f)\n        .ok();\n}\n";
        assert_eq!(findings("a.rs", text), ["a.rs:4 swallows a failed read: .ok()"]);
    }

    #[test]
    fn judging_code_is_where_pods_are_judged() {
        assert!(is_judging("crates/palisade-policy/src/scc/choose.rs"));
        assert!(is_judging("crates/palisade-apiserver/src/pod_security/psp.rs"));
        assert!(!is_judging("crates/palisade-apiserver/src/http/body.rs"));
        assert!(!is_judging("crates/palisade-policy/tests/it/main.rs"));
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for place in JUDGING {
            assert!(root.join(place).exists(), "{place} is gone: where is its code judged now?");
        }
    }
}
