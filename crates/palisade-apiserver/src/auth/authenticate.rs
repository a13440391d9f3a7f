//! From a connection and headers to a user: client certificate, bearer token, or anonymous.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, header};
use palisade_apimachinery::Status;
use ring::digest::{SHA256, digest};

use super::token::{Claims, ISSUER, TokenKey};
use super::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, UserInfo};
use crate::api::Peer;
use crate::http::tls::PeerCertificate;
use crate::storage::Store;
use crate::streaming;

/// The tokens and their users.
#[derive(Debug)]
pub struct Authenticator {
    /// Signs and verifies service-account tokens.
    pub key: TokenKey,
    /// Digests of static tokens: comparing digests leaks nothing about the token.
    tokens: Vec<(Vec<u8>, UserInfo)>,
    store: Store,
}

impl Authenticator {
    /// An authenticator with static tokens.
    #[must_use]
    pub fn new(key: TokenKey, tokens: Vec<(String, UserInfo)>, store: Store) -> Self {
        let tokens = tokens.into_iter().map(|(token, user)| (hash(&token), user)).collect();
        Self { key, tokens, store }
    }

    /// Who sends these headers on this connection?
    pub fn authenticate(&self, headers: &HeaderMap, peer: &Peer, now: i64) -> Result<UserInfo, Box<Status>> {
        let mut refused = false;
        match &peer.certificate {
            Some(PeerCertificate::Valid { user, not_after }) if now <= *not_after => {
                return Ok(authenticated(user.clone()));
            }
            Some(_) => refused = true,
            None => {}
        }
        let token = bearer_token(headers).map(str::to_owned).or_else(|| websocket_token(headers));
        if let Some(token) = token {
            match self.user_of_token(&token, None, now) {
                Some((user, _)) => return Ok(user),
                None => refused = true,
            }
        }
        if refused {
            return Err(Status::unauthorized());
        }
        if let Some(trusted) = &peer.trusted {
            return Ok(trusted.clone());
        }
        Ok(UserInfo::new(ANONYMOUS, &[UNAUTHENTICATED]))
    }

    /// The user behind a token and the audiences it is good for, where `audiences` (or this server) is one of them.
    #[must_use]
    pub fn user_of_token(
        &self,
        token: &str,
        audiences: Option<&[String]>,
        now: i64,
    ) -> Option<(UserInfo, Vec<String>)> {
        let own = [ISSUER.to_owned()];
        let wanted = audiences.unwrap_or(&own);
        let digest = hash(token);
        if let Some((_, user)) = self.tokens.iter().find(|(known, _)| *known == digest) {
            let shared = wanted.iter().filter(|a| *a == ISSUER).cloned().collect::<Vec<_>>();
            return (!shared.is_empty()).then(|| (authenticated(user.clone()), shared));
        }
        let claims = self.key.verify(token, now)?;
        let shared: Vec<String> = wanted.iter().filter(|a| claims.aud.contains(a)).cloned().collect();
        if shared.is_empty() {
            return None;
        }
        Some((self.service_account(&claims)?, shared))
    }

    /// The service account of a token, if it and what the token is bound to are still the same objects.
    fn service_account(&self, claims: &Claims) -> Option<UserInfo> {
        let private = &claims.private;
        let account = &private.serviceaccount;
        let alive = |resource: &str, name: &str, uid: &str| {
            let found = self.store.bucket(resource).get(&format!("{}/{name}", private.namespace));
            found.is_some_and(|object| object.uid() == uid)
        };
        if !alive("serviceaccounts", &account.name, &account.uid) {
            return None;
        }
        let mut user = UserInfo::service_account(&private.namespace, &account.name, &account.uid);
        if let Some(pod) = &private.pod {
            if !alive("pods", &pod.name, &pod.uid) {
                return None;
            }
            let extra = |key: &str| format!("authentication.kubernetes.io/{key}");
            user.extra.insert(extra("pod-name"), vec![pod.name.clone()]);
            user.extra.insert(extra("pod-uid"), vec![pod.uid.clone()]);
        }
        // Only for the record: a token outlives the Node object, as upstream.
        if let Some(node) = &private.node {
            let extra = |key: &str| format!("authentication.kubernetes.io/{key}");
            user.extra.insert(extra("node-name"), vec![node.name.clone()]);
            if !node.uid.is_empty() {
                user.extra.insert(extra("node-uid"), vec![node.uid.clone()]);
            }
        }
        if let Some(secret) = &private.secret
            && !alive("secrets", &secret.name, &secret.uid)
        {
            return None;
        }
        let id = format!("JTI={}", claims.jti);
        user.extra.insert("authentication.kubernetes.io/credential-id".to_owned(), vec![id]);
        Some(user)
    }
}

fn authenticated(mut user: UserInfo) -> UserInfo {
    if !user.in_group(AUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

fn hash(token: &str) -> Vec<u8> {
    digest(&SHA256, token.as_bytes()).as_ref().to_vec()
}

/// The token that a browser sends as a subprotocol of a WebSocket, because it cannot set headers. One that is malformed is
/// the empty token, which is nobody's.
fn websocket_token(headers: &HeaderMap) -> Option<String> {
    if !streaming::wants_upgrade(headers, Some("websocket")) {
        return None;
    }
    let mut tokens = streaming::bearer_protocols(headers);
    let encoded = tokens.next()?;
    let decoded = URL_SAFE_NO_PAD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    Some(decoded.filter(|_| tokens.next().is_none()).unwrap_or_default())
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
