//! Requests on their way in: bounded in size and time, and refused by the name of the bad field.

use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;

use crate::wire::{MAX_REQUEST_BODY, Problem};

/// How long a body may take to arrive.
const BODY_LIMIT: Duration = Duration::from_secs(10);
/// How much of an oversized body is read and thrown away, so that its sender reads our answer
/// instead of a reset connection.
const DISCARD: usize = 1024 * 1024;

/// A JSON body.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let bytes = tokio::time::timeout(BODY_LIMIT, read(request))
            .await
            .map_err(|_| {
                Problem::too_slow(format!(
                    "the body took longer than {} s",
                    BODY_LIMIT.as_secs()
                ))
            })??;
        let mut json = serde_json::Deserializer::from_slice(&bytes);
        let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path = error.path().to_string();
            let inner = error.into_inner();
            Problem::malformed(match path.as_str() {
                "." | "?" => inner.to_string(),
                field => format!("{field}: {inner}"),
            })
        })?;
        json.end()
            .map_err(|error| Problem::malformed(error.to_string()))?;
        Ok(Self(value))
    }
}

async fn read(request: Request) -> Result<Vec<u8>, Problem> {
    let mut body = request.into_body();
    let mut bytes = Vec::new();
    let mut seen = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Problem::malformed(error.to_string()))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        seen += data.len();
        if seen <= MAX_REQUEST_BODY {
            bytes.extend_from_slice(&data);
        } else if seen > DISCARD {
            break;
        }
    }
    if seen > MAX_REQUEST_BODY {
        let detail = format!("a body may have {MAX_REQUEST_BODY} bytes, this one has more");
        return Err(Problem::too_large(detail));
    }
    Ok(bytes)
}

/// Parameters after the `?`.
pub(crate) struct Parameters<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync + Send> FromRequestParts<S> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(Problem::malformed(rejection.body_text())),
        }
    }
}
