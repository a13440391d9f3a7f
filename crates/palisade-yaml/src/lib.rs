//! YAML (and JSON) text with spans, and edits that disturb nothing else.
//!
//! This crate knows nothing of Kubernetes but how it reads YAML: scalars, keys, merge keys and duplicates mean what
//! sigs.k8s.io/yaml on go-yaml v2 makes of them.
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
//! assert_eq!(found.value.as_bool(), Some(true));
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
//! | tell a Helm template from YAML | [`looks_like_template`] |
//! | read a type with serde, borrowing | [`Document::deserialize`], or any [`NodeRef`] as a `Deserializer` |
//! | get JSON | [`NodeRef::to_json`] |
//! | walk the values, aliases and merge keys applied | [`NodeRef::view`], [`NodeRef::entries`], [`NodeRef::items`] |
//! | walk the text as it is written | [`NodeRef::node`], [`Node`], [`Kind`] |
//! | find a path, or the deepest ancestor of a missing one | [`Document::find`] |
//! | refuse duplicate keys | [`Document::duplicate_keys`] |
//! | line and column of an offset | [`LineIndex`] |

mod de;
mod decode;
mod document;
mod edit;
mod error;
mod limits;
mod locate;
mod message;
mod node_ref;
mod path;
mod reader;
mod scalar;
mod span;
mod template;

pub use de::DeserializeError;
pub use decode::{DecodeError, decode};
pub use document::{Collection, Comment, Document, Kind, Node, NodeId, Scalar, ScalarStyle, Tag};
pub use edit::{EditError, Editor, TextEdit, Value, WhenEmpty};
pub use error::{DuplicateKey, Error, ErrorKind};
pub use limits::Limits;
pub use node_ref::{Entry, NodeRef, View};
pub use path::{DisplayPath, Found, Missing, Reached, Step};
pub use reader::{Parsed, parse};
pub use scalar::Resolved;
pub use span::{LineIndex, Position, Span};
pub use template::looks_like_template;
