package examine

import (
	"crypto/x509"
	"encoding/pem"
	"os"

	"github.com/tidemarkdb/tidemark/rpc/diagnosispb"
)

// maxCertificates bounds the certificates of one file that are reported.
const maxCertificates = 16

// CertificateFile is a file with certificates in PEM. Kind is as in diagnosispb.Certificate.
type CertificateFile struct{ Path, Kind string }

// read reports the certificates of the file as it is now. A file without a certificate is reported
// with the reason.
func (f CertificateFile) read() (all []*diagnosispb.Certificate) {
	failed := func(why string) []*diagnosispb.Certificate {
		return append(all, &diagnosispb.Certificate{File: f.Path, Kind: f.Kind, Failure: why})
	}
	rest, err := os.ReadFile(f.Path)
	if err != nil {
		return failed(err.Error())
	}
	for len(all) < maxCertificates {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return failed(err.Error())
		}
		all = append(all, &diagnosispb.Certificate{File: f.Path, Kind: f.Kind,
			Subject: c.Subject.String(), NotBeforeUnix: c.NotBefore.Unix(),
			NotAfterUnix: c.NotAfter.Unix()})
	}
	if len(all) == 0 {
		return failed("the file has no certificate")
	}
	return all
}
