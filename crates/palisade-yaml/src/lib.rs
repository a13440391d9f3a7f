//! YAML (and JSON) text with spans, and edits that disturb nothing else.
//!
//! This crate depends on nothing of Kubernetes but how it reads YAML: scalars, keys, merge keys and duplicates mean what
//! sigs.k8s.io/yaml on go-yaml v2 makes of them.
//!
//! Crates compared: `serde_yaml` is no longer maintained, and returns values without their places and comments; `saphyr` and
//! `serde-saphyr` read YAML 1.2, in which `yes` and `0o17` mean something else than to an API server, and write a document
//! anew; `yaml-edit` keeps the text, but resolves scalars, merge keys and duplicates by its own rules. `check` must read
//! exactly what the API server will read, and `--fix` must change nothing else.
//!
//! # Reading
//!
//! [`parse`] reads every document of a text. A mistake in one document does not hide the others.
//!
//! ```
//! use palisade_yaml::{Limits, LineIndex, Step, parse};
//!
//! let source = "spec:\n  hostPID: yes # debugging\n---\nspec: [\n";
//! let parsed = parse(source, &Limits::default());
//! let lines = LineIndex::new(source);
//!
//! // Documents, and values with their place.
//! let document = &parsed.documents[0];
//! let found = document.find(&[Step::Key("spec"), Step::Key("hostPID")]).map_err(|_| "missing")?;
//! assert_eq!(found.value.to_json().map_err(|_| "not JSON")?, true);
//! assert_eq!(lines.position(found.span().start).line, 2);
//!
//! // Comments.
//! assert_eq!(parsed.comments()[0].text, "debugging");
//!
//! // Errors, one for each document that has one.
//! assert_eq!(parsed.errors[0].to_string(), "expected a value here");
//! # Ok::<(), &str>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | turn bytes into text | [`decode`] |
//! | distinguish a Helm template from YAML | [`looks_like_template`] |
//! | read a type with serde, borrowing | [`Document::deserialize`], or any [`NodeRef`] as a `Deserializer` |
//! | get JSON | [`NodeRef::to_json`] |
//! | walk the values, aliases and merge keys applied | [`NodeRef::view`], [`NodeRef::entries`], [`NodeRef::items`] |
//! | walk the text as it is written | [`NodeRef::node`], [`Node`], [`Kind`] |
//! | find a path, or the deepest ancestor of a missing one | [`Document::find`] |
//! | refuse duplicate keys | [`Document::duplicate_keys`] |
//! | line and column of an offset | [`LineIndex`] |
//!
//! # Editing
//!
//! An [`Editor`] collects edits by path and writes them in the style of their surroundings. Every other byte stays:
//! comments, order, quotes, anchors, indentation, line ends. The result is read again before it is returned, so an
//! edit never changes a value that it does not name.
//!
//! ```
//! use palisade_yaml::{Editor, Limits, Step, Value, WhenEmpty, parse};
//!
//! let source = "spec:\n  containers:\n  - name: web # the shop\n    securityContext: {privileged: true}\n";
//! let parsed = parse(source, &Limits::default());
//! let context = [Step::Key("spec"), Step::Key("containers"), Step::Index(0), Step::Key("securityContext")];
//! let below = |rest: &[Step<'static>]| [&context[..], rest].concat();
//!
//! let mut editor = Editor::new(&parsed);
//! editor.remove(0, &below(&[Step::Key("privileged")]), WhenEmpty::Keep)?;
//! editor.set(0, &below(&[Step::Key("capabilities"), Step::Key("drop")]), Value::list(["ALL"]))?;
//! editor.set(0, &[Step::Key("spec"), Step::Key("hostUsers")], false)?;
//! assert_eq!(
//!     editor.finish()?,
//!     "spec:\n  containers:\n  - name: web # the shop\n    securityContext: {capabilities: {drop: [ALL]}}\n  hostUsers: false\n"
//! );
//! # Ok::<(), palisade_yaml::EditError>(())
//! ```
//!
//! # How it is made
//!
//! `scanner` (tokens) → `grammar` (events) → `builder` (one [`Document`]: an arena of nodes) → `reader` (all of a
//! stream, errors, comments). [`NodeRef`] gives meaning to nodes: aliases, merge keys, numbers. `edit` plans text
//! edits on the nodes' spans. No step recurses deeper than [`Limits::max_depth`].

#![warn(clippy::disallowed_types, clippy::disallowed_methods)]
#![expect(
    clippy::unnecessary_box_returns,
    reason = "errors are rare, and every result would be as large as one"
)]

mod builder;
mod de;
mod decode;
mod document;
mod edit;
mod error;
mod grammar;
mod limits;
mod lines;
mod node_ref;
mod path;
mod reader;
mod scalar;
mod scanner;
mod span;
mod template;

pub use de::DeserializeError;
pub use decode::{DecodeError, decode};
pub use document::{Collection, Comment, Document, Kind, Node, NodeId, Scalar, ScalarStyle, Tag};
pub use edit::{EditError, Editor, TextEdit, Value, WhenEmpty, to_yaml};
pub use error::{DuplicateKey, Error, ErrorKind};
pub use limits::Limits;
pub use node_ref::{Entry, NodeRef, View};
pub use path::{DisplayPath, Found, Missing, Reached, Step};
pub use reader::{Parsed, parse};
pub use scalar::Resolved;
pub use span::{LineIndex, Position, Span};
pub use template::looks_like_template;
