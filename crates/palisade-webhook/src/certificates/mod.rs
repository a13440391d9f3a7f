//! The certificate that the API server sees, and the authority it trusts.
//!
//! [`issue`] makes them, [`plan`] decides when (pure), [`keeper`] keeps them in a Secret that all replicas share, [`files`]
//! follows files, [`resolver`] lets them be replaced while connections are open.

pub mod files;
pub mod issue;
pub mod keeper;
pub mod plan;
pub mod resolver;

use std::collections::BTreeSet;

/// What the API server shall trust: PEM, newest last. Empty: what it trusts anyway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// The certificates of the authorities.
    pub authorities: Vec<String>,
}

impl Trust {
    /// As a `caBundle` holds it, before base64.
    #[must_use]
    pub fn bundle(&self) -> String {
        self.authorities.concat()
    }

    /// The authorities in it.
    #[must_use]
    pub fn set(&self) -> BTreeSet<String> {
        self.authorities.iter().cloned().collect()
    }
}
