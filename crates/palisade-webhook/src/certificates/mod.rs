//! The certificate that the API server sees, and the authority it trusts.
//!
//! [`plan`] decides when they are made (pure), [`keeper`] keeps them in a Secret that all replicas share, [`files`] follows
//! files. Making and serving them is `palisade-serve`'s.

pub mod files;
pub mod keeper;
pub mod plan;

use std::{collections::BTreeSet, time::Duration};

use palisade_serve::{
    certificate::{self, IssueError, Pair},
    tls::{Resolver, ServeError},
};

use crate::metrics::Metrics;

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

/// A new authority.
pub fn authority(now: i64, validity: Duration) -> Result<Pair, IssueError> {
    certificate::authority("palisade-webhook-ca", now, validity)
}

/// A new serving certificate.
pub fn serving(signer: &Pair, names: &[String], now: i64, validity: Duration) -> Result<Pair, IssueError> {
    certificate::serving(signer, "palisade-webhook", names, now, validity)
}

/// Serves another certificate from now on, and reports its expiry.
pub(crate) fn replace(
    resolver: &Resolver,
    pair: &Pair,
    authority: Option<i64>,
    metrics: &Metrics,
) -> Result<(), ServeError> {
    resolver.replace(pair)?;
    metrics.certificates(certificate::about(&pair.certificate)?.not_after, authority);
    Ok(())
}
