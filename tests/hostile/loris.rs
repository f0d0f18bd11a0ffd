//! Clients that send a byte now and then, on both listeners and at every stage: all are dropped.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tonic::transport::{Certificate, Channel, ClientTlsConfig};

use crate::{
    harness::{
        Authority, Client, DEADLINE, Server, eventually, fake_kind,
        raw::{self, DATA, END_HEADERS, HEADERS},
    },
    hostile::victim::{KEPT_BYTES, Victim, normal, open_descriptors, resident},
};

/// Sends byte after byte, far apart, until the server closes the connection.
fn dribble(mut stream: TcpStream, bytes: Vec<u8>) -> JoinHandle<()> {
    thread::spawn(move || {
        let begun = Instant::now();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut bytes = bytes.into_iter().cycle();
        loop {
            assert!(begun.elapsed() < DEADLINE, "the server waits for ever");
            let mut answer = [0; 4096];
            match stream.read(&mut answer) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
            if stream.write_all(&[bytes.next().unwrap()]).is_err() {
                return;
            }
        }
    })
}

/// Waits until the server has closed all of them.
fn wait_for(all: Vec<JoinHandle<()>>) {
    for one in all {
        one.join().expect("the server closes it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_greetings_and_slow_heads_are_dropped() {
    let mut victim = Victim::start("", "").await;
    let greeting = b"PRI * HTTP/2.0\r\n\r\nSM".to_vec();
    let connect = |door: &str| TcpStream::connect(door).unwrap();
    // Slow enough that the whole greeting takes longer than anyone waits.
    let greetings = (0..32)
        .map(|_| {
            let mut stream = connect(&victim.server.grpc);
            stream.write_all(&greeting[..8]).unwrap();
            thread::spawn(move || {
                stream.set_read_timeout(Some(DEADLINE)).unwrap();
                let timed_out = |error: std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
                assert!(!stream.read_to_end(&mut Vec::new()).is_err_and(timed_out), "the server waits for ever");
            })
        })
        .collect();
    let heads = (0..32).map(|_| dribble(connect(&victim.server.http), b"GET /metrics HTTP/1.1".to_vec())).collect();
    victim.serves_others().await;
    wait_for(greetings);
    wait_for(heads);
    victim.recovers().await;
}

async fn client_with_tls(server: &Server, authority: &Authority) -> Client {
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority.pem())).domain_name("localhost");
    let endpoint = Channel::from_shared(format!("https://{}", server.grpc)).unwrap().tls_config(tls).unwrap();
    Client::over(endpoint.connect_timeout(DEADLINE).connect().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_handshakes_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (cert, key) = authority.issue("localhost").write(dir.path(), "server");
    let doors = "listen = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"";
    let files = format!("tls_cert = \"{}\"\ntls_key = \"{}\"", cert.display(), key.display());
    let server = Server::start(&format!("[server]\n{doors}\n{files}\n{}", fake_kind("k", &[], "min = 1")));
    let mut client = client_with_tls(&server, &authority).await;
    client.execute(normal()).await.result();
    let (memory, descriptors) = (resident(server.pid()), open_descriptors(server.pid()));
    // The beginning of a record that promises a hello of 16 KiB.
    let hello = [&[22, 3, 1, 64, 0][..], &[1; 64]].concat();
    let mut all = Vec::new();
    for door in [&server.grpc, &server.http] {
        all.extend((0..16).map(|_| dribble(TcpStream::connect(door).unwrap(), hello.clone())));
        all.extend((0..16).map(|_| dribble(TcpStream::connect(door).unwrap(), Vec::from([22]))));
        client.execute(normal()).await.result();
        client_with_tls(&server, &authority).await.execute(normal()).await.result();
    }
    wait_for(all);
    eventually("descriptors to be closed", || (open_descriptors(server.pid()) < descriptors + 16).then_some(()));
    eventually("memory to be given back", || (resident(server.pid()) < memory + KEPT_BYTES).then_some(()));
    drop(client);
    assert_eq!(server.stop_cleanly().code(), Some(0));
}

/// A call whose message comes byte by byte is over when its time is up; the connection lives on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_requests_are_refused() {
    let mut victim = Victim::start("request_timeout = \"2s\"", "").await;
    let mut slow: Vec<TcpStream> = (0..32).map(|_| raw::connect(&victim.server.grpc, &[])).collect();
    let call = raw::call("/remuda.v1.WorkerPool/Execute");
    for stream in &mut slow {
        for id in [1, 3] {
            stream.write_all(&raw::frame(HEADERS, END_HEADERS, id, &call)).unwrap();
        }
        // One call promises a message of 1,000 bytes, the other says nothing more.
        stream.write_all(&raw::frame(DATA, 0, 1, &[0, 0, 0, 3, 232, 10])).unwrap();
    }
    victim.serves_others().await;
    let late = r#"remuda_grpc_requests_total{code="DEADLINE_EXCEEDED",method="remuda.v1.WorkerPool/Execute"}"#;
    let mut sent = 0;
    eventually("all slow requests to be refused", || {
        if sent < 500 {
            sent += 1;
            for stream in &mut slow {
                let _ = stream.write_all(&raw::frame(DATA, 0, 1, b"x"));
            }
        }
        (victim.server.metric(late) as u32 == 64).then_some(())
    });
    drop(slow);
    victim.recovers().await;
}

/// Reflection is a conversation: it lasts while the client asks, not while it says nothing, or a byte now and then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversations_that_are_not_carried_on_end() {
    let method = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let mut victim = Victim::start("request_timeout = \"2s\"", "").await;
    let mut slow: Vec<TcpStream> = (0..32).map(|_| raw::connect(&victim.server.grpc, &[])).collect();
    let mut talking = raw::connect(&victim.server.grpc, &[]);
    let call = raw::call(&format!("/{method}"));
    for stream in &mut slow {
        for id in [1, 3] {
            stream.write_all(&raw::frame(HEADERS, END_HEADERS, id, &call)).unwrap();
        }
        // One call promises a message of 1,000 bytes, the other says nothing more.
        stream.write_all(&raw::frame(DATA, 0, 1, &[0, 0, 0, 3, 232])).unwrap();
    }
    talking.write_all(&raw::frame(HEADERS, END_HEADERS, 1, &call)).unwrap();
    victim.serves_others().await;
    let ended = format!(r#"remuda_grpc_requests_total{{code="OK",method="{method}"}}"#);
    let begun = Instant::now();
    let list_services = [0, 0, 0, 0, 2, 0x3a, 0];
    eventually("the idle conversations to end", || {
        for stream in &mut slow {
            let _ = stream.write_all(&raw::frame(DATA, 0, 1, b"x"));
        }
        talking.write_all(&raw::frame(DATA, 0, 1, &list_services)).unwrap();
        thread::sleep(Duration::from_millis(200));
        (begun.elapsed() > Duration::from_secs(4) && victim.server.metric(&ended) as u32 >= 64).then_some(())
    });
    assert_eq!(victim.server.metric(&ended) as u32, 64, "one that is carried on ended too");
    drop((slow, talking));
    victim.recovers().await;
}
