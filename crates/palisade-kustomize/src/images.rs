//! New names, tags and digests of images.

use regex::Regex;

use crate::tree::{Node, Origin, Value};

/// An entry of `images`.
pub(crate) struct Image<'n> {
    entry: &'n Node,
    pattern: Option<Regex>,
}

impl<'n> Image<'n> {
    pub(crate) fn new(entry: &'n Node) -> Self {
        let name = entry.text(&["name"]);
        // As kustomize does, without escapes. What is no expression matches nothing there either.
        let pattern =
            Regex::new(&format!("^{name}(:[a-zA-Z0-9_.{{}}-]*)?(@sha256:[a-zA-Z0-9_.{{}}-]*)?$")).ok();
        Self { entry, pattern }
    }

    /// Changes the images of the containers in an object, wherever they are.
    pub(crate) fn apply(&self, node: &mut Node) {
        match &mut node.value {
            Value::Scalar(_) => {}
            Value::List(items) => {
                for item in items {
                    self.apply(item);
                }
            }
            Value::Map(entries) => {
                for (key, value) in entries {
                    if matches!(key.as_str(), "containers" | "initContainers") {
                        for container in value.items_mut() {
                            self.container(container);
                        }
                    }
                    self.apply(value);
                }
            }
        }
    }

    fn container(&self, container: &mut Node) {
        let image = container.text(&["image"]).to_owned();
        if !self.pattern.as_ref().is_some_and(|pattern| pattern.is_match(&image)) {
            return;
        }
        let text = |field: &str| self.entry.get(field).map(text_of).unwrap_or_default();
        let (mut name, mut tag, mut digest) = split(&image);
        let (new_name, new_tag, new_digest, suffix) =
            (text("newName"), text("newTag"), text("digest"), text("tagSuffix"));
        if !new_name.is_empty() {
            name = new_name;
        }
        if !new_tag.is_empty() || !new_digest.is_empty() {
            (tag, digest) = (new_tag, new_digest);
        } else if !suffix.is_empty() {
            (tag, digest) = (tag + &suffix, String::new());
        }
        let mut new = name;
        for (mark, part) in [(':', tag), ('@', digest)] {
            if !part.is_empty() {
                new.push(mark);
                new.push_str(&part);
            }
        }
        let origin: Option<Origin> = self.entry.origin;
        container.set("image", Node::made(new.into(), origin));
    }
}

/// A tag may be written as a number.
fn text_of(node: &Node) -> String {
    node.as_str().map_or_else(|| node.to_json().to_string(), str::to_owned)
}

fn split(image: &str) -> (String, String, String) {
    let (rest, digest) = image.split_once('@').unwrap_or((image, ""));
    let after_host = rest.find('/').unwrap_or(0);
    let (name, tag) = match rest.get(after_host..).and_then(|rest| rest.find(':')) {
        Some(at) => (rest.get(..after_host + at), rest.get(after_host + at + 1..)),
        None => (Some(rest), None),
    };
    (name.unwrap_or(rest).to_owned(), tag.unwrap_or_default().to_owned(), digest.to_owned())
}
