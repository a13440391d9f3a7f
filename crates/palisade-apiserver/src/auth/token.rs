//! Service-account tokens: signed, bound to objects, checked against what still exists.
//!
//! Implements: Managing Service Accounts, "TokenRequest API", and Authenticating, "Service account tokens".
//! <https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/>

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::http::tls::{TlsError, read_private, write_private};

/// The issuer, and the audience of tokens meant for this server.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Why tokens cannot be signed.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The key could not be made or read.
    #[error("cannot use the service account key")]
    Key,
    /// The key could not be kept.
    #[error(transparent)]
    File(#[from] TlsError),
}

/// An object a token dies with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundObject {
    /// Name.
    pub name: String,
    /// Uid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The private claims of a service-account token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Private {
    /// Namespace of the service account.
    pub namespace: String,
    /// Pod the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<BoundObject>,
    /// The node of that pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<BoundObject>,
    /// Secret the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<BoundObject>,
    /// The service account.
    pub serviceaccount: BoundObject,
}

/// The claims of a service-account token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Who may take it.
    pub aud: Vec<String>,
    /// End of validity.
    pub exp: i64,
    /// Time of issue.
    pub iat: i64,
    /// Who made it.
    pub iss: String,
    /// Its own id.
    pub jti: String,
    /// What it is bound to.
    #[serde(rename = "kubernetes.io")]
    pub private: Private,
    /// Start of validity.
    pub nbf: i64,
    /// Whom it stands for.
    pub sub: String,
}

/// Signs and verifies tokens.
#[derive(Debug)]
pub struct TokenKey {
    key: EcdsaKeyPair,
    random: SystemRandom,
    key_id: String,
}

impl TokenKey {
    /// Makes a key, or reads the one kept in a directory.
    pub fn open(directory: Option<&Path>) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let path = directory.map(|d| d.join("sa.key"));
        let kept = path.as_deref().map(read_private).transpose()?.flatten();
        let document = if let Some(kept) = kept {
            kept
        } else {
            let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
            let made = made.map_err(|_| KeyError::Key)?.as_ref().to_vec();
            if let Some(path) = &path {
                write_private(path, &made)?;
            }
            made
        };
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &document, &random)
            .map_err(|_| KeyError::Key)?;
        let key_id = ring::digest::digest(&ring::digest::SHA256, key.public_key().as_ref());
        let key_id = URL_SAFE_NO_PAD.encode(key_id.as_ref());
        Ok(Self { key, random, key_id })
    }

    /// A token with these claims.
    pub fn sign(&self, claims: &Claims) -> Result<String, KeyError> {
        let header = serde_json::json!({"alg": "ES256", "kid": self.key_id}).to_string();
        let claims = serde_json::to_string(claims).map_err(|_| KeyError::Key)?;
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.key.sign(&self.random, message.as_bytes()).map_err(|_| KeyError::Key)?;
        Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref())))
    }

    /// The claims of a token this key signed and whose time has come and not gone.
    #[must_use]
    pub fn verify(&self, token: &str, now: i64) -> Option<Claims> {
        let (message, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref())
            .verify(message.as_bytes(), &signature)
            .ok()?;
        let claims = URL_SAFE_NO_PAD.decode(message.split_once('.')?.1).ok()?;
        let claims: Claims = serde_json::from_slice(&claims).ok()?;
        (claims.iss == ISSUER && claims.nbf <= now.saturating_add(5) && now < claims.exp).then_some(claims)
    }

    /// The public key as a JSON Web Key, for `/openid/v1/jwks`.
    #[must_use]
    pub fn jwk(&self) -> serde_json::Value {
        // An uncompressed point: 4, x, y.
        let point = self.key.public_key().as_ref();
        let (x, y) = point.get(1..).unwrap_or_default().split_at_checked(32).unwrap_or_default();
        serde_json::json!({
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_its_own_tokens_in_their_time_only() {
        let (ours, other) = (TokenKey::open(None).expect("key"), TokenKey::open(None).expect("key"));
        let claims = Claims {
            aud: vec![ISSUER.to_owned()],
            exp: 200,
            iat: 100,
            iss: ISSUER.to_owned(),
            jti: "1".to_owned(),
            private: Private {
                namespace: "a".to_owned(),
                pod: None,
                node: None,
                secret: None,
                serviceaccount: BoundObject { name: "b".to_owned(), uid: "c".to_owned() },
            },
            nbf: 100,
            sub: "system:serviceaccount:a:b".to_owned(),
        };
        let token = ours.sign(&claims).expect("token");
        assert_eq!(ours.verify(&token, 150), Some(claims));
        assert_eq!(ours.verify(&token, 200), None, "expired");
        assert_eq!(ours.verify(&token, 50), None, "not yet valid");
        assert_eq!(other.verify(&token, 150), None, "foreign");
        assert_eq!(ours.verify(&format!("{token}A"), 150), None, "tampered");
        assert_eq!(ours.verify("a.b", 150), None, "garbage");
    }
}
