//! Paths: what they lead to, and by which way.

use palisade_yaml::{DisplayPath, Limits, Reached, Step, parse};

fn steps(path: &str) -> Vec<Step<'_>> {
    path.split('.').map(|step| step.parse().map_or(Step::Key(step), Step::Index)).collect()
}

const SOURCE: &str = "\
base: &base
  user: 1
  group: 2
other: &other {user: 9, extra: 3}
direct:
  list:
  - a
  - user: 5
alias: *base
merged:
  <<: [*base, *other]
  group: 7
late:
  group: 7
  <<: *base
";

#[test]
fn finds_values_keys_and_detours() {
    let parsed = parse(SOURCE, &Limits::default());
    let document = &parsed.documents[0];
    for (path, value, key, detour) in [
        ("direct.list.0", "a", None, ""),
        ("direct.list.1.user", "5", Some("user"), ""),
        ("base.user", "1", Some("user"), ""),
        ("alias.user", "1", Some("user"), "alias *base"),
        ("merged.user", "1", Some("user"), "merge <<"),
        ("merged.extra", "3", Some("extra"), "merge <<"),
        ("merged.group", "7", Some("group"), ""),
        ("late.group", "2", Some("group"), "merge <<"),
    ] {
        let found = document.find(&steps(path)).unwrap_or_else(|_| panic!("{path} is missing"));
        assert_eq!(found.span().text(SOURCE), value, "{path}");
        assert_eq!(found.key.map(|key| key.text(SOURCE)), key, "{path}");
        let reached = match found.reached {
            Reached::Directly => String::new(),
            Reached::Alias(span) => format!("alias {}", span.text(SOURCE)),
            Reached::Merge(span) => format!("merge {}", span.text(SOURCE)),
        };
        assert_eq!(reached, detour, "{path}");
    }
}

#[test]
fn a_missing_path_names_its_deepest_ancestor() {
    let parsed = parse(SOURCE, &Limits::default());
    let document = &parsed.documents[0];
    for (path, depth, ancestor) in [
        ("nothing", 0, SOURCE.trim_end()),
        ("direct.list.2", 2, "- a\n  - user: 5"),
        ("direct.list.1.group.x", 3, "user: 5"),
        ("base.user.x", 2, "1"),
        ("direct.0", 1, "list:\n  - a\n  - user: 5"),
    ] {
        let missing = document.find(&steps(path)).expect_err(path);
        assert_eq!((missing.depth, missing.ancestor.span().text(SOURCE)), (depth, ancestor), "{path}");
    }
}

#[test]
fn paths_read_like_kubernetes_writes_them() {
    let path =
        [Step::Key("metadata"), Step::Key("annotations"), Step::Key("a.b/c"), Step::Index(0), Step::Key("x")];
    assert_eq!(DisplayPath(&path).to_string(), "metadata.annotations[a.b/c][0].x");
}
