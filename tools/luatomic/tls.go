package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
)

// tlsFlags name the files of a connection with TLS.
type tlsFlags struct{ authority, cert, key string }

// The client's key is not --key, which names calls.
func (f *tlsFlags) add(flags *flag.FlagSet) {
	flags.StringVar(&f.authority, "cacert", f.authority,
		"PEM `FILE` of the authorities that may sign the server's certificate, with rediss://; the system's if left "+
			"out")
	flags.StringVar(&f.cert, "cert", f.cert, "PEM `FILE` of the client's certificate, with rediss://")
	flags.StringVar(&f.key, "cert-key", f.key, "PEM `FILE` of its private key; in the file of --cert if left out")
}

// config adds the files to the configuration of a rediss:// URL, which is nil for another URL.
func (f *tlsFlags) config(base *tls.Config) (*tls.Config, error) {
	switch {
	case *f == (tlsFlags{}):
		return base, nil
	case base == nil:
		return nil, usagef("--cacert, --cert and --cert-key are for TLS; " +
			"write rediss:// in the server URL, or leave them out")
	case f.cert == "" && f.key != "":
		return nil, usagef("--cert-key without --cert; name the certificate too")
	}
	out := base.Clone()
	if f.authority != "" {
		text, err := os.ReadFile(f.authority)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		if out.RootCAs = x509.NewCertPool(); !out.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--cacert: %s has no certificate; write certificates in PEM into it", f.authority)
		}
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, cmp.Or(f.key, f.cert))
		var file *fs.PathError // it names the one that cannot be read
		if errors.As(err, &file) {
			return nil, fmt.Errorf("--cert: %w", err)
		}
		if err != nil {
			return nil, fmt.Errorf("--cert: %w; name the file of its private key with --cert-key", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}
