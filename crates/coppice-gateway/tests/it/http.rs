//! Clients of HTTP, in TLS or not.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::gateway::TestGateway;

/// Where a gateway says back what a client of HTTP says first.
async fn echo(gateway: &TestGateway) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, gateway) = (listener.local_addr().unwrap(), gateway.gateway.clone());
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let gateway = gateway.clone();
            tokio::spawn(async move {
                let mut stream = gateway.http_stream(tcp).await?;
                let said = stream.read_u8().await?;
                stream.write_u8(said).await?;
                stream.shutdown().await
            });
        }
    });
    address
}

/// Who trusts the gateway's certificate alone, and speaks these protocols.
fn client(gateway: &TestGateway, protocols: &[&str]) -> TlsConnector {
    let certificate = std::fs::read(gateway.certificate_dir.path().join("gateway.crt")).unwrap();
    let mut trusted = RootCertStore::empty();
    trusted.add(CertificateDer::from_pem_slice(&certificate).unwrap()).unwrap();
    let mut config = ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

#[tokio::test]
async fn a_client_of_http_may_begin_with_tls() {
    let gateway = TestGateway::start().await;
    let address = echo(&gateway).await;
    let protocols: [(&[&str], Option<&str>); 3] =
        [(&["http/1.1", "h2"], Some("h2")), (&["http/1.1"], Some("http/1.1")), (&[], None)];
    for (offered, chosen) in protocols {
        let tcp = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = client(&gateway, offered).connect(name, tcp).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), chosen.map(str::as_bytes), "{offered:?}");
        stream.write_u8(b'G').await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'G', "{offered:?}");
    }
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_u8(b'G').await.unwrap();
    assert_eq!(plain.read_u8().await.unwrap(), b'G', "nobody has to");
}

#[tokio::test]
async fn a_client_of_postgresql_is_no_client_of_http() {
    let gateway = TestGateway::start().await;
    let tcp = TcpStream::connect(echo(&gateway).await).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let refused = client(&gateway, &["postgresql"]).connect(name, tcp).await;
    assert!(refused.is_err(), "there is no protocol that both speak");
}
