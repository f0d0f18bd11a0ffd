//! Reflection and the standard health service, for clients that know only the address.

use std::time::Duration;

use remuda::api::proto::DESCRIPTORS;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tonic::{Code, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::harness::{Server, fake_kind};

async fn channel(server: &Server) -> Channel {
    Channel::from_shared(format!("http://{}", server.grpc)).unwrap().connect().await.unwrap()
}

/// Asks one version of reflection for the services.
macro_rules! services {
    ($version:ident, $channel:expr) => {{
        use tonic_reflection::pb::$version::{
            ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
            server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
        };
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        let mut client = ServerReflectionClient::new($channel);
        let mut answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
        match answers.message().await.unwrap().unwrap().message_response.unwrap() {
            MessageResponse::ListServicesResponse(list) => {
                list.service.into_iter().map(|service| service.name).collect::<Vec<String>>()
            }
            other => panic!("{other:?}"),
        }
    }};
}

#[tokio::test]
async fn reflection_lists_the_services_in_both_versions() {
    let server = Server::start(&fake_kind("k", &[], "min = 0"));
    let channel = channel(&server).await;
    for services in [services!(v1, channel.clone()), services!(v1alpha, channel.clone())] {
        for expected in ["remuda.v1.WorkerPool", "remuda.v1.PoolAdmin", "grpc.health.v1.Health"] {
            assert!(services.iter().any(|name| name == expected), "{expected} is missing in {services:?}");
        }
    }
    assert!(!DESCRIPTORS.is_empty());
}

#[tokio::test]
async fn health_service_knows_the_server_and_each_kind() {
    let good = fake_kind("good", &[], "min = 1");
    let server = Server::start(&format!("{good}[kinds.bad]\ncommand = [\"no-such-program-anywhere\"]\n"));
    let mut health = HealthClient::new(channel(&server).await);
    let mut watch = health.watch(HealthCheckRequest { service: "good".to_owned() }).await.unwrap().into_inner();
    let mut seen = Vec::new();
    while seen.last() != Some(&ServingStatus::Serving) {
        let change = timeout(Duration::from_secs(30), watch.next()).await.expect("a change in time");
        seen.push(change.expect("the watch goes on").unwrap().status());
    }
    assert!(seen.len() <= 2, "only changes are told: {seen:?}");
    let mut check = async |service: &str| {
        health
            .check(HealthCheckRequest { service: service.to_owned() })
            .await
            .map(|answer| answer.into_inner().status())
    };
    assert_eq!(check("").await.unwrap(), ServingStatus::Serving);
    assert_eq!(check("remuda.v1.WorkerPool").await.unwrap(), ServingStatus::Serving);
    assert_eq!(check("good").await.unwrap(), ServingStatus::Serving);
    assert_eq!(check("bad").await.unwrap(), ServingStatus::NotServing);
    let unknown = check("nothing").await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    assert_eq!(unknown.message(), "there is no service \"nothing\"; ask for \"\" or a kind: good, bad");
}
