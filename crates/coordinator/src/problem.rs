//! Errors on their way out: what each refusal is called and which status it has.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::decision::Refusal;
use crate::wire::{PROBLEM_JSON, Problem};

impl Problem {
    pub(crate) fn refusal(refusal: Refusal, detail: String) -> Self {
        let (status, name, title) = match refusal {
            Refusal::Invalid => (400, "invalid-field", "a field cannot be used"),
            Refusal::NoSuchRank => (404, "no-such-rank", "the job has no such rank"),
            Refusal::RankTaken => (409, "rank-taken", "another peer holds the rank"),
            Refusal::OtherRank => (409, "other-rank", "the peer holds another rank"),
            Refusal::EndpointChanged => (409, "endpoint-changed", "the peer is a member already"),
            Refusal::NotRegistered => (404, "not-registered", "the peer is not registered"),
            Refusal::CannotForm => return Self::cannot_form(detail),
        };
        Self::new(status, name, title, detail)
    }

    pub(crate) fn cannot_form(detail: String) -> Self {
        Self::new(
            410,
            "cannot-form",
            "the membership cannot become complete",
            detail,
        )
    }

    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(400, "malformed", "the request cannot be understood", detail)
    }

    pub(crate) fn too_large(detail: impl Into<String>) -> Self {
        Self::new(413, "too-large", "the request is too large", detail)
    }

    pub(crate) fn too_slow(detail: impl Into<String>) -> Self {
        Self::new(
            408,
            "too-slow",
            "the request did not arrive in time",
            detail,
        )
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(
            401,
            "unauthorized",
            "a token is needed",
            "the job's token is missing or wrong",
        )
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
