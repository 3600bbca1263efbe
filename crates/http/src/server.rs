//! Listening, and ending in good order.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use highwater_node::{Node, Prepared};
use tokio::net::TcpListener;

use crate::access::{ListenError, Tokens, may_listen};
use crate::app::{App, Limits};
use crate::net::{Port, PortConfig, Serving};
use crate::routes;
use crate::tls::TlsIdentity;

/// How often idle streams are looked for.
const JANITOR: Duration = Duration::from_millis(200);

/// How long requests under way may take to end once the server is told to stop.
const GRACE: Duration = Duration::from_secs(5);

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The address to listen on; port 0 takes any that is free.
    pub listen: SocketAddr,
    /// The clients' tokens. None are needed on loopback.
    pub tokens: Tokens,
    /// The certificate by which clients know this node. With one, clients speak TLS.
    pub tls: Option<TlsIdentity>,
    /// Clients may speak without TLS although there is a certificate, or although the address is not loopback.
    pub plain: bool,
    /// The origins (`https://app.example`) whose pages may send requests from a browser. None by default.
    pub origins: Vec<String>,
    /// Whether a secret of the cluster's nodes is configured, which any address but loopback needs.
    pub has_cluster_secret: bool,
    /// Bounds.
    pub limits: Limits,
}

impl ServerConfig {
    /// The defaults at that address: no tokens, no TLS, no secret.
    pub fn new(listen: SocketAddr) -> ServerConfig {
        ServerConfig {
            listen,
            tokens: Tokens::default(),
            tls: None,
            plain: false,
            origins: Vec::new(),
            has_cluster_secret: false,
            limits: Limits::default(),
        }
    }
}

/// Why a server does not listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address may not be listened on as configured.
    #[error("refusing to listen: {0}")]
    Refused(#[from] ListenError),
    /// The operating system refused.
    #[error("cannot listen on {address}: {source}; stop what listens there, or choose another address with --listen")]
    Io {
        /// The address.
        address: SocketAddr,
        /// What it said.
        source: std::io::Error,
    },
}

/// A listening server that does not serve yet.
pub struct Server {
    listener: TcpListener,
    config: ServerConfig,
}

impl Server {
    /// Begins to listen, so that an address in use is noticed before anything else is touched.
    pub async fn bind(config: ServerConfig) -> Result<Server, BindError> {
        let encrypted = config.tls.is_some() || config.plain;
        may_listen(config.listen.ip(), &config.tokens, config.has_cluster_secret, encrypted)?;
        let listener = TcpListener::bind(config.listen)
            .await
            .map_err(|source| BindError::Io { address: config.listen, source })?;
        Ok(Server { listener, config })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("a bound listener has an address")
    }

    /// Lets other nodes in by that door from now on; clients wait for [`OpenServer::run`].
    pub fn open(self, prepared: &Prepared) -> OpenServer {
        let port = PortConfig {
            door: prepared.door(),
            tls: self.config.tls.as_ref().map(TlsIdentity::for_clients),
            plain: self.config.plain,
            connections: self.config.limits.connections,
            forwarders: self.config.limits.forwarders,
        };
        OpenServer { port: Port::open(self.listener, port), config: self.config }
    }
}

/// A server that lets other nodes in, and does not serve clients yet.
pub struct OpenServer {
    port: Port,
    config: ServerConfig,
}

impl OpenServer {
    /// Serves that node until `stop` is done; then takes no more connections, finishes what is under way, and closes all streams.
    pub async fn run(self, node: Arc<Node>, stop: impl Future<Output = ()> + Send + 'static) {
        let connections = self.port.counts();
        let app = App::new(node, self.config.tokens, self.config.origins, self.config.limits, connections);
        let app = Arc::new(app);
        let janitor = tokio::spawn(expire_streams(app.clone()));
        let (stop_all, stopping) = tokio::sync::watch::channel(false);
        self.port.serve(Serving { router: routes::router(app.clone()), stopping });
        stop.await;
        self.port.close();
        stop_all.send_replace(true);
        if tokio::time::timeout(GRACE, self.port.all_gone()).await.is_err() {
            tracing::warn!("some requests did not end within {} s and are cut off", GRACE.as_secs());
        }
        janitor.abort();
        let streams = app.streams.drain();
        let _ = tokio::task::spawn_blocking(move || drop(streams)).await;
    }
}

async fn expire_streams(app: Arc<App>) {
    loop {
        // sleep: streams expire by time; how often that is looked for.
        tokio::time::sleep(JANITOR).await;
        let expired = app.streams.expire(Instant::now());
        if !expired.is_empty() {
            let closed = tokio::task::spawn_blocking(move || drop(expired));
            if let Err(error) = closed.await {
                tracing::error!(%error, "closing an idle stream failed");
            }
        }
    }
}
