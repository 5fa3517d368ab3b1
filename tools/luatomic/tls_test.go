package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// authority signs certificates, its own first.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.issue("ca")
	return a
}

// issue writes a certificate and its key to files of that name.
func (a *authority) issue(name string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if a.cert == nil {
		template.IsCA, template.KeyUsage, template.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
		a.cert, a.key = template, key
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	require.NoError(a.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	a.write(name+".pem", "CERTIFICATE", cert)
	a.write(name+".key", "PRIVATE KEY", secret)
}

func (a *authority) write(name, kind string, der []byte) {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	require.NoError(a.t, os.WriteFile(a.file(name), text, 0o600))
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// front listens with TLS before a server without, and demands a client's certificate of this authority.
func (a *authority) front(server string) (address string) {
	pair, err := tls.LoadX509KeyPair(a.file("server.pem"), a.file("server.key"))
	require.NoError(a.t, err)
	roots, text := x509.NewCertPool(), must(os.ReadFile(a.file("ca.pem")))
	require.True(a.t, roots.AppendCertsFromPEM(text))
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS12,
	})
	require.NoError(a.t, err)
	var open sync.WaitGroup
	a.t.Cleanup(func() {
		_ = l.Close()
		open.Wait()
	})
	open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { passOn(conn, server) })
		}
	})
	return l.Addr().String()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// passOn returns when both directions have ended.
func passOn(client net.Conn, server string) {
	defer client.Close()
	upstream, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	replied := make(chan struct{})
	go func() {
		defer close(replied)
		_, _ = io.Copy(client, upstream)
		_ = client.Close()
	}()
	_, _ = io.Copy(upstream, client)
	_ = upstream.Close()
	<-replied
}

func TestTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("server")
	a.issue("client")
	server := luatomictest.StartServer(t)
	e := &env{t: t, url: "rediss://" + a.front(server.Addr())}
	ca, cert := []string{"--cacert", a.file("ca.pem")}, []string{"--cert", a.file("client.pem")}
	key := []string{"--cert-key", a.file("client.key")}
	run := func(flags ...[]string) *cli {
		args := []string{"push", "q"}
		for _, f := range flags {
			args = append(args, f...)
		}
		return e.with(`{"body":1}`).run(args...)
	}
	holds(t, run(ca, cert, key).exits(exitDone).object(), map[string]any{"pushed": 1})
	e.run("queues", "ls", "--dialect", "sidekiq7", "--cacert", a.file("ca.pem"), "--cert", a.file("client.pem"),
		"--cert-key", a.file("client.key")).exits(exitDone)
	both := append(must(os.ReadFile(a.file("client.pem"))), must(os.ReadFile(a.file("client.key")))...)
	require.NoError(t, os.WriteFile(a.file("both.pem"), both, 0o600))
	holds(t, run(ca, []string{"--cert", a.file("both.pem")}).exits(exitDone).object(), map[string]any{"pushed": 1})

	other := newAuthority(t)
	for says, c := range map[string]*cli{
		"that signed it with --cacert":     run(cert, key),
		"authority that signed it with --": run([]string{"--cacert", other.file("ca.pem")}, cert, key),
		"luatomic: cannot use rediss://":   run(ca), // the server ends the connection: no certificate
		"has no certificate":               run([]string{"--cacert", a.file("client.key")}),
		"none.pem: no such file":           run([]string{"--cacert", a.file("none.pem")}),
		"private key with --cert-key":      run(ca, cert),
	} {
		require.Contains(t, c.exits(exitFailed).stderr.String(), says)
		require.Empty(t, c.stdout.String())
	}
	c := run(ca, []string{"--cert", a.file("none.pem")}, key).exits(exitFailed)
	require.NotContains(t, c.stderr.String(), "--cert-key", "the key is named, and the certificate is not there")
	require.Contains(t, run(ca, key).exits(exitUsage).stderr.String(), "--cert-key without --cert")
	e.url = server.URL()
	require.Contains(t, run(ca).exits(exitUsage).stderr.String(), "write rediss:// in the server URL")
	require.Contains(t, reachCure("tls: first record does not look like a TLS handshake"), "write redis://")
	require.Contains(t, reachCure("remote error: tls: certificate required"), "--cert and --cert-key")
}

// The URL of a sentinel leads to the master that it names.
func TestSentinelURL(t *testing.T) {
	t.Parallel()
	master := luatomictest.StartServer(t)
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	require.NoError(t, os.WriteFile(conf, []byte("sentinel monitor main "+host+" "+port+" 1\n"), 0o600))
	sentinel := luatomictest.StartServer(t, conf, "--sentinel")
	e := &env{t: t, url: sentinel.URL() + "?master_name=main"}
	holds(t, e.with(`{"body":1}`).run("push", "q").exits(exitDone).object(), map[string]any{"pushed": 1})
	e.run("lock", "x", "--", "true").exits(exitDone)
	(&env{t: t, url: master.URL()}).run("stats", "q").exits(exitDone)

	e.url = sentinel.URL() + "?master_name=none&password=secret"
	c := e.run("stats", "q").exits(exitFailed)
	require.Contains(t, c.stderr.String(), "check the address of the sentinel and master_name")
	require.NotContains(t, c.stderr.String(), "secret")

	for _, e.url = range []string{sentinel.URL(), sentinel.URL() + "?protocol=2"} {
		c = e.run("stats", "q").exits(exitFailed)
		require.Contains(t, c.stderr.String(), "it is a sentinel, and has no data; add ?master_name=NAME to the URL")
	}
}
