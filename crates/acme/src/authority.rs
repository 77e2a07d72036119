//! An authority: the account there, and orders of certificates.

use std::fmt::Write as _;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use instant_acme::{
    Account, AuthorizationStatus, BodyWrapper, BytesResponse, ChallengeType, ExternalAccountKey,
    HttpClient, Identifier, KeyAuthorization, NewAccount, NewOrder, Order, OrderStatus, Problem,
    RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::crypto::ring;
use tokio::task::JoinError;
use tollgate_tls::TlsError;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::proofs::ProofError;
use crate::store::{StateError, Store, StoredAccount};
use crate::{Challenge, Settings};

/// Time limit of a request to the authority, from the resolution of its name to the last byte.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Responses are certificate chains at most.
const RESPONSE_BYTES_MAX: u64 = 1 << 20;
/// Time limit of the check of the proofs, and of the issue of the certificate.
const PATIENCE: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(300));
/// Longest pause that the authority can ask for.
const RETRY_AFTER_SECONDS_MAX: u64 = 600;

#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error("{}", advice(.0))]
    Protocol(#[from] instant_acme::Error),
    #[error("the authority does not know the account any more; remove `{}`, so that a new one is made", .0.display())]
    UnknownAccount(PathBuf),
    #[error("the authority does not offer the challenge `{0}` for {1}; choose another `challenge`")]
    NoChallenge(&'static str, String),
    #[error(transparent)]
    Proof(#[from] ProofError),
    /// With the reason that the authority gives for each name.
    #[error("the authority could not check the names: {0}")]
    Refused(String),
    #[error("cannot make the request for the certificate")]
    Request(#[from] rcgen::Error),
    #[error("cannot use the issued certificate")]
    Certificate(#[from] TlsError),
    #[error(
        "the issued certificate, for {names}, lacks a name or is due for renewal already; check the clock"
    )]
    Unsuitable { names: String },
    #[error("the order has panicked; report this bug")]
    Bug(#[source] JoinError),
}

fn advice(error: &instant_acme::Error) -> &'static str {
    match error {
        instant_acme::Error::Api(_) => "the authority refuses",
        instant_acme::Error::Timeout(_) => {
            "the authority has not checked the names or issued the certificate in time"
        }
        _ => "cannot talk to the authority",
    }
}

impl Challenge {
    /// The name in the protocol and in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::TlsAlpn01 => "tls-alpn-01",
            Self::Http01 => "http-01",
        }
    }

    fn kind(self) -> ChallengeType {
        match self {
            Self::TlsAlpn01 => ChallengeType::TlsAlpn01,
            Self::Http01 => ChallengeType::Http01,
        }
    }
}

/// Opens the account at the authority, and makes and keeps one if there is none yet.
pub(crate) async fn open_account(
    settings: &Settings,
    store: &Store,
) -> Result<Account, OrderError> {
    let builder = Account::builder_with_http(Box::new(HttpsClient::new(settings)));
    let contact = settings.contact.as_ref().map(|address| format!("mailto:{address}"));
    let contact = contact.as_deref();
    if let Some(stored) = store.account()? {
        let account = builder.from_credentials(stored.parse()?).await?;
        if stored.contact != settings.contact {
            account.update_contacts(contact.as_slice()).await?;
            store.keep_account(&StoredAccount { contact: settings.contact.clone(), ..stored })?;
        }
        return Ok(account);
    }
    let account = NewAccount {
        contact: contact.as_slice(),
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let external = settings.external_account.as_ref();
    let external =
        external.map(|account| ExternalAccountKey::new(account.id.clone(), &account.key));
    let directory = settings.directory.clone();
    let (account, credentials) = builder.create(&account, directory, external.as_ref()).await?;
    store.keep_account(&StoredAccount::new(settings.contact.clone(), &credentials)?)?;
    Ok(account)
}

/// Orders a certificate. `show` shows the proof for a name, by its token, until the order has ended. Returns PEM: the private
/// key, the certificate and its chain.
pub(crate) async fn order(
    account: &Account,
    settings: &Settings,
    store: &Store,
    names: &[String],
    show: impl Fn(&str, &str, &KeyAuthorization) -> Result<(), ProofError>,
) -> Result<String, OrderError> {
    let challenge = settings.challenge;
    let identifiers: Vec<_> = names.iter().cloned().map(Identifier::Dns).collect();
    let order = account.new_order(&NewOrder::new(&identifiers)).await;
    let mut order = order.map_err(|error| match &error {
        instant_acme::Error::Api(Problem { r#type: Some(kind), .. })
            if kind.ends_with(":accountDoesNotExist") =>
        {
            OrderError::UnknownAccount(store.account_path())
        }
        _ => error.into(),
    })?;
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let name = authorization.identifier().to_string();
        let Some(mut offered) = authorization.challenge(challenge.kind()) else {
            return Err(OrderError::NoChallenge(challenge.name(), name));
        };
        let answer = offered.key_authorization();
        show(&name, &offered.token, &answer)?;
        offered.set_ready().await?;
    }
    match order.poll_ready(&PATIENCE).await {
        Ok(OrderStatus::Ready) => {}
        Ok(_) | Err(instant_acme::Error::Api(_)) => return Err(refusal(&mut order).await),
        Err(error) => return Err(error.into()),
    }
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name = DistinguishedName::new();
    order.finalize_csr(parameters.serialize_request(&key)?.der()).await?;
    Ok(key.serialize_pem() + &order.poll_certificate(&PATIENCE).await?)
}

/// Asks why an order has failed.
async fn refusal(order: &mut Order) -> OrderError {
    let mut reasons = String::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let name = authorization.identifier().to_string();
        let Ok(state) = authorization.refresh().await else { continue };
        let errors = state.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
        for error in errors {
            let text = error.detail.as_deref().or(error.r#type.as_deref()).unwrap_or("no reason");
            let separator = if reasons.is_empty() { "" } else { "; " };
            // Writing to a string cannot fail.
            let _ok = write!(reasons, "{separator}{name}: {text}");
        }
    }
    if reasons.is_empty() {
        reasons = "it gives no reason".to_owned();
    }
    OrderError::Refused(reasons)
}

/// Sends requests, and blocks the thread until their responses have arrived.
struct HttpsClient(Agent);

impl HttpsClient {
    fn new(settings: &Settings) -> Self {
        let roots = settings.authorities.iter().map(|der| Certificate::from_der(der).to_owned());
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
            .root_certs(RootCerts::from(roots))
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .timeout_global(Some(REQUEST_TIMEOUT))
            .https_only(true)
            .max_redirects(0)
            // Weeks pass between two orders.
            .max_idle_connections(0)
            // Bodies of errors have their reasons.
            .http_status_as_error(false)
            .build();
        Self(config.into())
    }
}

impl HttpClient for HttpsClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let agent = self.0.clone();
        Box::pin(async move {
            let other = |error| instant_acme::Error::Other(error);
            let (parts, body) = request.into_parts();
            let url = parts.uri.clone();
            let body = body.collect().await.map_err(|error| other(error.into()))?.to_bytes();
            let response = if body.is_empty() {
                agent.run(Request::from_parts(parts, ()))
            } else {
                agent.run(Request::from_parts(parts, &body[..]))
            };
            let response = response.map_err(|error| other(error.into()))?;
            let (mut parts, mut body) = Response::into_parts(response);
            let is_problem = parts.headers.get(CONTENT_TYPE).is_some_and(|kind| {
                kind.as_bytes().to_ascii_lowercase().starts_with(b"application/problem+json")
            });
            if !parts.status.is_success() && !is_problem {
                return Err(other(format!("status {} from {url}", parts.status.as_u16()).into()));
            }
            cap_retry_after(&mut parts.headers);
            let body = body.with_config().limit(RESPONSE_BYTES_MAX).read_to_vec();
            let body = Bytes::from(body.map_err(|error| other(error.into()))?);
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

/// Limits a pause in seconds. A date too far in the future is a timeout in any case.
fn cap_retry_after(headers: &mut HeaderMap) {
    let Some(value) = headers.get(RETRY_AFTER) else { return };
    let seconds = value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok());
    if seconds.is_some_and(|seconds| seconds > RETRY_AFTER_SECONDS_MAX) {
        headers.insert(RETRY_AFTER, RETRY_AFTER_SECONDS_MAX.into());
    }
}
