//! Access: tokens and their roles on every method and path, TLS with and without client certificates.

mod exposed;
mod secrets;
mod strangers;
mod tls;
mod tokens;

use prost::Message;
use prost_types::FileDescriptorSet;
use remuda::api::proto::DESCRIPTORS;
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};
use tonic_prost::ProstCodec;

use crate::harness::DEADLINE;

/// Every path that the HTTP side has, and one that it has not.
const HTTP_PATHS: [&str; 5] = ["/", "/metrics", "/livez", "/readyz", "/other"];

/// Every method that the server has, as the path of its calls.
fn all_methods() -> Vec<String> {
    let sets = [
        DESCRIPTORS,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    let mut methods = Vec::new();
    for file in sets.iter().flat_map(|set| FileDescriptorSet::decode(*set).unwrap().file) {
        for service in &file.service {
            let path = |name: &str| format!("/{}.{}/{name}", file.package(), service.name());
            methods.extend(service.method.iter().map(|method| path(method.name())));
        }
    }
    assert!(methods.len() > 20, "{methods:?}");
    methods
}

/// Calls a method with an empty message and gives the code of the answer, or OK if there was an answer at all.
async fn call(channel: &Channel, method: &str, token: Option<&str>) -> Code {
    let mut client = Grpc::new(channel.clone());
    if client.ready().await.is_err() {
        return Code::Unavailable;
    }
    let mut request = Request::new(tokio_stream::once(()));
    if let Some(token) = token {
        let value: MetadataValue<Ascii> = format!("Bearer {token}").parse().unwrap();
        request.metadata_mut().insert("authorization", value);
    }
    // What comes back is not looked at, so that any message will do.
    let codec = ProstCodec::<(), ()>::default();
    let path: PathAndQuery = method.parse().unwrap();
    let called = tokio::time::timeout(DEADLINE, client.streaming(request, path, codec)).await.expect("an answer");
    let refused = match called {
        Err(status) => Some(status),
        // A stream that stays open was let in.
        Ok(response) => {
            let mut stream = response.into_inner();
            let short = std::time::Duration::from_millis(200);
            tokio::time::timeout(short, stream.message()).await.ok().and_then(Result::err)
        }
    };
    refused.as_ref().map_or(Code::Ok, Status::code)
}

fn is_refusal(code: Code) -> bool {
    matches!(code, Code::Unauthenticated | Code::PermissionDenied)
}
