//! Label selectors and field selectors.
//!
//! Implements: `k8s.io/apimachinery/pkg/labels` and `…/fields`, their errors included, and the field labels each kind
//! supports (`pkg/apis/*/v1/conversion.go`).

mod fields;
mod labels;

pub use fields::FieldSelector;
pub use labels::parse_labels;
