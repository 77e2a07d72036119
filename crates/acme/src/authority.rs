//! An authority: the account there, and orders for certificates.

use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use instant_acme::{
    Account, AuthorizationStatus, BodyWrapper, BytesResponse, ChallengeType, ExternalAccountKey,
    HttpClient, Identifier, KeyAuthorization, NewAccount, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::crypto::ring;
use tollgate_tls::{ClientError, TlsError, authorities};
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::proofs::ProofError;
use crate::store::{StateError, Store};
use crate::{Challenge, Settings};

/// Of a request to the authority, from the resolution of its name to the last byte.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Responses are certificate chains at most.
const RESPONSE_BYTES_MAX: u64 = 1 << 20;
/// How long the authority may take to check the proofs, and to issue the certificate.
const PATIENCE: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(300));

#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    #[error("cannot use TLS with the authority")]
    Tls(#[from] ClientError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("{}", match .0 { instant_acme::Error::Api(_) => "the authority refuses", _ => "cannot talk to the authority" })]
    Protocol(#[from] instant_acme::Error),
    #[error("the authority does not offer the challenge `{0}` for {1}; choose another `challenge`")]
    NoChallenge(&'static str, String),
    #[error(transparent)]
    Proof(#[from] ProofError),
    /// What it says about each name.
    #[error("the authority could not check the names: {0}")]
    Refused(String),
    #[error("cannot make the request for the certificate")]
    Request(#[from] rcgen::Error),
    #[error("cannot use the certificate that the authority has issued")]
    Certificate(#[from] TlsError),
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
pub(crate) async fn account(settings: &Settings, store: &Store) -> Result<Account, OrderError> {
    let client = HttpsClient::new(settings)?;
    let builder = Account::builder_with_http(Box::new(client));
    if let Some(credentials) = store.account()? {
        return Ok(builder.from_credentials(credentials).await?);
    }
    let contact = settings.contact.as_ref().map(|address| format!("mailto:{address}"));
    let contact = contact.as_deref();
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
    store.keep_account(&credentials)?;
    Ok(account)
}

/// Orders a certificate. `show` shows the proof for a name, by its token, until the order has ended. Returns PEM: the private
/// key, the certificate and its chain.
pub(crate) async fn order(
    account: &Account,
    challenge: Challenge,
    names: &[String],
    show: impl Fn(&str, &str, &KeyAuthorization) -> Result<(), ProofError>,
) -> Result<String, OrderError> {
    let identifiers: Vec<_> = names.iter().cloned().map(Identifier::Dns).collect();
    let mut order = account.new_order(&NewOrder::new(&identifiers)).await?;
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
    fn new(settings: &Settings) -> Result<Self, ClientError> {
        let authorities = authorities(settings.authorities.as_deref())?;
        let roots = authorities.iter().map(|der| Certificate::from_der(der).to_owned());
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
            .root_certs(RootCerts::from(roots))
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .timeout_global(Some(REQUEST_TIMEOUT))
            // Their bodies say what is wrong.
            .http_status_as_error(false)
            .build();
        Ok(Self(config.into()))
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
            let body = body.collect().await.map_err(|error| other(error.into()))?.to_bytes();
            let response = if body.is_empty() {
                agent.run(Request::from_parts(parts, ()))
            } else {
                agent.run(Request::from_parts(parts, &body[..]))
            };
            let response = response.map_err(|error| other(error.into()))?;
            let (parts, mut body) = Response::into_parts(response);
            let body = body.with_config().limit(RESPONSE_BYTES_MAX).read_to_vec();
            let body = Bytes::from(body.map_err(|error| other(error.into()))?);
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}
