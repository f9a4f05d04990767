//! Where a NATS server is, how to log in there, and a connection that ends instead of publishing late.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{ConnectOptions, Event, ServerAddr};
use pillarbox_core::wire::from_line_safe;
use pillarbox_core::{Invalid, Problem};
use url::Url;
use zeroize::Zeroizing;

use crate::{checks, encryption};

/// What is asked of a server at once; everything beyond waits with the caller.
pub(super) const WINDOW: usize = 1_000;

/// How to reach a NATS server, beyond its address.
#[derive(Clone)]
pub struct NatsOptions {
    /// How long one call may take, connecting included; 10 s unless set.
    pub timeout: Duration,
    /// A credentials file, as `nsc` makes it.
    pub credentials_file: Option<PathBuf>,
    /// Certificates, as a PEM file, that are trusted instead of the system's. Where they are given, nothing goes out in plain
    /// text, whatever the address begins with; otherwise a server at `nats://` decides.
    pub root_certificates: Option<PathBuf>,
    /// The JetStream domain, where the server is a leaf node of one.
    pub domain: Option<String>,
}

impl Default for NatsOptions {
    fn default() -> Self {
        let timeout = Duration::from_secs(10);
        Self { timeout, credentials_file: None, root_certificates: None, domain: None }
    }
}

impl fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("NatsOptions");
        shown.field("timeout", &self.timeout).field("domain", &self.domain);
        shown.field("has_credentials_file", &self.credentials_file.is_some()).finish_non_exhaustive()
    }
}

#[derive(Clone)]
enum Login {
    Nobody,
    Token(Zeroizing<String>),
    User(String, Zeroizing<String>),
}

/// One or several servers of a cluster.
#[derive(Clone)]
pub(super) struct Server {
    /// Without user and password: the client writes these into its log.
    addresses: Vec<ServerAddr>,
    login: Login,
    options: NatsOptions,
}

/// A connection, and what its server complained about last.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) context: Context,
    complaint: Arc<Mutex<Option<String>>>,
}

impl Server {
    /// Reads `nats://[user:password@|token@]host[:port]`, or `tls://…`; several servers of a cluster with commas between.
    pub(super) fn parse(text: &str, options: NatsOptions) -> Result<Self, Invalid> {
        let mut problems = Vec::new();
        checks::time("timeout", options.timeout, &mut problems);
        if options.domain.as_ref().is_some_and(|domain| !is_name(domain)) {
            problems.push(Problem::malformed("domain", "must be a name without dots, spaces and wildcards"));
        }
        let (mut addresses, mut login) = (Vec::new(), Login::Nobody);
        for part in text.split(',').map(str::trim) {
            match parse_one(part) {
                Ok((address, its_login)) => {
                    addresses.push(address);
                    if !matches!(its_login, Login::Nobody) {
                        login = its_login;
                    }
                }
                Err(complaint) => problems.push(Problem::malformed("url", complaint)),
            }
        }
        Invalid::unless_empty(problems)?;
        Ok(Self { addresses, login, options })
    }

    pub(super) fn timeout(&self) -> Duration {
        self.options.timeout
    }

    /// Connects once. The connection ends by itself when it breaks: what was not sent yet is then dropped, and not sent later,
    /// when its caller has long been told that it was not delivered.
    pub(super) async fn connect(&self) -> Result<Connection, String> {
        let complaint = Arc::new(Mutex::new(None));
        let heard = Arc::clone(&complaint);
        let mut options = ConnectOptions::new()
            .name("pillarbox")
            .connection_timeout(self.options.timeout)
            .request_timeout(Some(self.options.timeout))
            // A server that keeps silent for three of these is given up.
            .ping_interval(self.options.timeout)
            .client_capacity(WINDOW)
            .ignore_discovered_servers()
            .max_reconnects(self.addresses.len())
            .event_callback(move |event| {
                if let Event::ServerError(error) = event {
                    *heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                }
                async {}
            });
        options = match &self.login {
            Login::Nobody => options,
            Login::Token(token) => options.token(token.to_string()),
            Login::User(name, password) => options.user_and_password(name.clone(), password.to_string()),
        };
        if let Some(file) = &self.options.credentials_file {
            let doing = |error| format!("{self}: the credentials file cannot be used: {error}");
            options = options.credentials_file(file).await.map_err(doing)?;
        }
        let roots = self.options.root_certificates.as_deref();
        let encryption = encryption::trusting(roots).map_err(|why| format!("{self}: {why}"))?.with_no_client_auth();
        let options = options.tls_client_config(encryption).require_tls(roots.is_some());
        let connected = options.connect(&self.addresses[..]).await;
        let client = connected.map_err(|error| format!("{self}: {}", encryption::words(&error)))?;
        let builder = ContextBuilder::new().timeout(self.options.timeout).ack_timeout(self.options.timeout);
        let context = match &self.options.domain {
            None => builder.build(client),
            Some(domain) => ContextBuilder::new().domain(domain).timeout(self.options.timeout).build(client),
        };
        Ok(Connection { context, complaint })
    }
}

impl Connection {
    /// Adds what the server said, which says more than a time that ran out.
    pub(super) fn explain(&self, why: impl fmt::Display) -> String {
        match &*self.complaint.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(complaint) => format!("{why}; the server said: {complaint}"),
            None => why.to_string(),
        }
    }
}

/// Host and port of each server.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, address) in self.addresses.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{}:{}", address.host(), address.port())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A stream's, a consumer's or a domain's name.
pub(super) fn is_name(text: &str) -> bool {
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || ".*>/\\".contains(c);
    !text.is_empty() && text.len() <= 255 && !text.contains(is_bad)
}

fn parse_one(part: &str) -> Result<(ServerAddr, Login), &'static str> {
    let whole = if part.contains("://") { part.to_owned() } else { format!("nats://{part}") };
    let mut url = Url::parse(&whole).map_err(|_| "is no address of a NATS server")?;
    if !matches!(url.scheme(), "nats" | "tls") {
        return Err("must begin with nats:// or tls://");
    }
    if url.host_str().unwrap_or_default().is_empty() {
        return Err("names no host");
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err("must end after the port");
    }
    let decoded = |text: &str| from_line_safe(text).into_owned();
    let login = match (url.username(), url.password()) {
        ("", None) => Login::Nobody,
        (token, None) => Login::Token(Zeroizing::new(decoded(token))),
        (name, Some(password)) => Login::User(decoded(name), Zeroizing::new(decoded(password))),
    };
    let is_cleared = url.set_username("").is_ok() && url.set_password(None).is_ok();
    match ServerAddr::from_url(url) {
        Ok(address) if is_cleared => Ok((address, login)),
        _ => Err("is no address of a NATS server"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Server, Invalid> {
        Server::parse(text, NatsOptions::default())
    }

    #[test]
    fn an_address_names_servers_and_a_login() {
        let server = parsed("nats://me:p%40ss@one, tls://two:5222").unwrap();
        assert_eq!(server.to_string(), "one:4222,two:5222");
        assert!(matches!(&server.login, Login::User(name, password) if name == "me" && **password == "p@ss"));
        assert!(matches!(&parsed("nats://secret@one").unwrap().login, Login::Token(token) if **token == "secret"));
        assert!(matches!(parsed("one:1").unwrap().login, Login::Nobody));
    }

    #[test]
    fn what_is_no_address_is_told_before_any_connection() {
        for bad in ["", "http://one", "nats://", "nats://one/path", "nats://one:99999", "one,,two"] {
            assert_eq!(parsed(bad).unwrap_err().problems()[0].field(), "url", "{bad}");
        }
        let options = NatsOptions { timeout: Duration::ZERO, domain: Some("a.b".to_owned()), ..NatsOptions::default() };
        let refused = Server::parse("one", options).unwrap_err();
        assert_eq!(refused.problems().iter().map(Problem::field).collect::<Vec<_>>(), ["timeout", "domain"]);
    }

    /// Secrets stay out of what is shown.
    #[test]
    fn no_secret_is_shown() {
        for url in ["nats://me:canary@one", "nats://canary@one", "me:canary@one:x"] {
            let shown = format!("{:?}", parsed(url));
            assert!(!shown.contains("canary"), "{shown}");
        }
        let server = parsed("nats://me:canary@one").unwrap();
        assert!(server.addresses.iter().all(|address| !address.as_url_str().contains("canary")));
    }
}
