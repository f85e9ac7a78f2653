//! The coordinator behind HTTP/1.1.
//!
//! Every request needs the job's token. Strangers cost little: a connection that does not send its
//! request in time is closed, bodies are bounded, and only so many connections are held at once.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json as JsonAnswer, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use subtle::ConstantTimeEq;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tracing::{debug, warn};

use crate::decision::{Answer, Change, Decision, Registration};
use crate::extract::{Json, Parameters};
use crate::handle::Coordinator;
use crate::wire::{
    Accepted, Leave, LostList, MAX_WAIT, Problem, Register, Registered, ReportLost, Status,
};

/// How long a connection may take to send a request's head; also how long it may idle.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// How long answers in flight may take when the server stops.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
/// Pause after the system refused to accept, which it does when it has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Connections beside those of the job's own ranks.
const SPARE_CONNECTIONS: usize = 256;
/// Connections a rank may hold: one that acts, one that waits for losses, and room.
const CONNECTIONS_A_RANK: usize = 4;

/// Serves `coordinator` on `listener` until `shutdown` completes, then ends every wait and returns.
///
/// ```no_run
/// # async fn example() -> std::io::Result<()> {
/// use carole_coordinator::{Coordinator, State, Token, serve};
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let coordinator = Coordinator::new(State::new("digits", 4), Token::from_bytes([0; 32]));
/// serve(listener, std::future::pending(), coordinator).await
/// # }
/// ```
pub async fn serve(
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
    coordinator: Coordinator,
) -> io::Result<()> {
    let permits = SPARE_CONNECTIONS + CONNECTIONS_A_RANK * coordinator.size();
    let permits = Arc::new(Semaphore::new(permits));
    let router = router(coordinator.clone());
    let (stop, stopping) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &permits) => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, permit)) => {
                let connection = converse(stream, router.clone(), stopping.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(permit);
                });
            }
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    coordinator.close();
    // Nobody listening means that every connection has ended already.
    let _ = stop.send(());
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_LIMIT, drained).await.is_err() {
        debug!("connections cut when the coordinator stopped");
    }
    Ok(())
}

async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = permits
        .clone()
        .acquire_owned()
        .await
        .map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, permit))
}

/// Serves one connection until it closes or the server stops.
async fn converse(stream: TcpStream, router: Router, mut stopping: watch::Receiver<()>) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(32 * 1024)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        _ = stopping.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        debug!(%error, "a connection ended badly");
    }
}

fn router(coordinator: Coordinator) -> Router {
    Router::new()
        .route("/v1/peers", post(register))
        .route("/v1/membership", get(membership))
        .route("/v1/status", get(status))
        .route("/v1/lost", post(report_lost).get(lost))
        .route("/v1/leave", post(leave))
        .fallback(no_such_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(
            coordinator.clone(),
            authorize,
        ))
        .with_state(coordinator)
}

/// Lets a request pass if it carries the job's token.
async fn authorize(
    State(coordinator): State<Coordinator>,
    request: Request,
    next: Next,
) -> Response {
    let expected = coordinator.token().to_hex();
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "))
        .unwrap_or_default();
    if bool::from(given.ct_eq(expected.as_bytes())) {
        next.run(request).await
    } else {
        Problem::unauthorized().into_response()
    }
}

async fn register(
    State(coordinator): State<Coordinator>,
    Json(request): Json<Register>,
) -> Result<JsonAnswer<Registered>, Problem> {
    let (decision, status) = coordinator.register(request.peer, request.rank, request.endpoint);
    match decision.outcome {
        Registration::Accepted(outcome) => Ok(JsonAnswer(Registered {
            outcome,
            reason: decision.reason,
            size: status.size,
            missing: status.missing,
        })),
        Registration::Refused(refusal) => Err(Problem::refusal(refusal, decision.reason)),
    }
}

/// The parameters of a long-poll.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Poll<N> {
    #[serde(default)]
    after: N,
    #[serde(default)]
    wait_ms: u64,
}

impl<N> Poll<N> {
    fn wait(&self) -> Duration {
        Duration::from_millis(self.wait_ms).min(MAX_WAIT)
    }
}

async fn membership(
    State(coordinator): State<Coordinator>,
    Parameters(poll): Parameters<Poll<u32>>,
) -> Result<Response, Problem> {
    match coordinator.membership_after(poll.after, poll.wait()).await {
        Answer::Ready(membership) => Ok(JsonAnswer(membership).into_response()),
        Answer::Wait => Ok(StatusCode::NO_CONTENT.into_response()),
        Answer::Never(reason) => Err(Problem::cannot_form(reason)),
    }
}

async fn lost(
    State(coordinator): State<Coordinator>,
    Parameters(poll): Parameters<Poll<u64>>,
) -> Response {
    let lost = coordinator.lost_after(poll.after, poll.wait()).await;
    if lost.is_empty() {
        return StatusCode::NO_CONTENT.into_response();
    }
    JsonAnswer(LostList { lost }).into_response()
}

async fn status(State(coordinator): State<Coordinator>) -> JsonAnswer<Status> {
    JsonAnswer(coordinator.status())
}

async fn report_lost(
    State(coordinator): State<Coordinator>,
    Json(request): Json<ReportLost>,
) -> Result<JsonAnswer<Accepted>, Problem> {
    accepted(coordinator.report_lost(request.rank, &request.reason, request.exit_code))
}

async fn leave(
    State(coordinator): State<Coordinator>,
    Json(request): Json<Leave>,
) -> Result<JsonAnswer<Accepted>, Problem> {
    accepted(coordinator.leave(&request.peer))
}

fn accepted(decision: Decision<Change>) -> Result<JsonAnswer<Accepted>, Problem> {
    match decision.outcome {
        Change::Recorded | Change::Known => Ok(JsonAnswer(Accepted {
            reason: decision.reason,
        })),
        Change::Refused(refusal) => Err(Problem::refusal(refusal, decision.reason)),
    }
}

async fn no_such_route(request: Request) -> Problem {
    let detail = format!("there is no {}", request.uri().path());
    Problem::new(404, "no-such-route", "there is no such route", detail)
}

async fn wrong_method(request: Request) -> Problem {
    let detail = format!(
        "{} cannot be used with {}",
        request.uri().path(),
        request.method()
    );
    Problem::new(405, "wrong-method", "the route has no such method", detail)
}
