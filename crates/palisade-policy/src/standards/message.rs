//! Upstream's sentences: how lists of containers and values are written.

/// Joins in double quotes, without escaping, as upstream does.
pub(crate) fn quoted<S: AsRef<str>>(items: &[S]) -> String {
    let mut text = String::new();
    for item in items {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push('"');
        text.push_str(item.as_ref());
        text.push('"');
    }
    text
}

/// One form for exactly one, the other for everything else.
pub(crate) const fn plural(one: &'static str, many: &'static str, count: usize) -> &'static str {
    if count == 1 { one } else { many }
}

/// `container "a"` or `containers "a", "b"`.
pub(crate) fn containers<S: AsRef<str>>(names: &[S]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

/// `pod`, `container "a"`, or `pod and container "a"`.
pub(crate) fn setters<S: AsRef<str>>(pod: bool, names: &[S]) -> String {
    match (pod, names.is_empty()) {
        (true, true) => "pod".to_owned(),
        (true, false) => format!("pod and {}", containers(names)),
        (false, _) => containers(names),
    }
}

/// Sorted by bytes, each once.
pub(crate) fn sorted_unique<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort_unstable();
    items.dedup();
    items
}
