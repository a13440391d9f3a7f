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
    /// The one that signed what this replica serves, if that is known.
    pub signer: Option<String>,
}

impl Trust {
    /// As a `caBundle` holds it, before base64.
    #[must_use]
    pub fn bundle(&self) -> String {
        self.authorities.concat()
    }

    /// The same with authorities that other replicas serve certificates of, in an order that all replicas agree on.
    #[must_use]
    pub fn with(&self, others: impl IntoIterator<Item = String>) -> Self {
        let mut authorities = self.authorities.clone();
        authorities.extend(others);
        if authorities.len() > self.authorities.len() {
            authorities.sort_by_cached_key(|pem| {
                let begins = certificate::about(pem).map_or(i64::MAX, |about| about.not_before);
                (begins, pem.clone())
            });
            authorities.dedup();
        }
        Self { authorities, signer: self.signer.clone() }
    }

    /// The authorities in it.
    #[must_use]
    pub fn set(&self) -> BTreeSet<String> {
        self.authorities.iter().cloned().collect()
    }
}

/// What the common name of every authority made here begins with.
const AUTHORITY: &str = "palisade-webhook-ca";

/// The authorities in a `caBundle`, after base64, that a webhook of ours made and that are still valid.
#[must_use]
pub fn authorities_in(bundle: &str, now: i64) -> BTreeSet<String> {
    bundle
        .split_inclusive("-----END CERTIFICATE-----\n")
        .filter(|pem| {
            // swallowed: what is no certificate of ours is not kept
            certificate::about(pem)
                .is_ok_and(|about| about.subject.starts_with(AUTHORITY) && about.not_after > now)
        })
        .map(str::to_owned)
        .collect()
}

/// A new authority.
pub fn authority(now: i64, validity: Duration) -> Result<Pair, IssueError> {
    certificate::authority(AUTHORITY, now, validity)
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
