package clustersecret

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tidemarkdb/tidemark/rpc/transport"
)

// FileName is the name of the file, in the directory of a cluster's first server, with the secret
// that this server has made.
const FileName = "cluster.secret"

const (
	// secretBytes is the length of a new secret. A secret of fewer than minSecretBytes is refused.
	secretBytes    = 32
	minSecretBytes = 16
	maxSecretFile  = 4 << 10
)

// New makes a cluster secret in the form of the file: one line of hexadecimal digits.
func New() string {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // never fails
	return hex.EncodeToString(secret) + "\n"
}

// Read reads a cluster secret.
func Read(path string) (transport.Secret, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the cluster secret: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSecretFile))
	if err != nil {
		return nil, fmt.Errorf("the cluster secret: %w", err)
	}
	return parseSecret(path, text)
}

func parseSecret(path string, text []byte) (transport.Secret, error) {
	secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the cluster secret %s: it is not one line of hexadecimal digits; "+
			"`tidemark secret` makes one", path)
	case len(secret) < minSecretBytes:
		return nil, fmt.Errorf("the cluster secret %s: it has %d hexadecimal digits, and needs at "+
			"least %d; `tidemark secret` makes one", path, 2*len(secret), 2*minSecretBytes)
	}
	return secret, nil
}

// ReadableByOthers reports whether users other than the owner may read a file.
func ReadableByOthers(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Perm()&0o077 != 0
}

// OfCluster returns the file with the secret of a cluster that one process runs. It creates the
// file if it does not exist.
func OfCluster(dir string) (path string, err error) {
	path = filepath.Join(dir, FileName)
	if _, err = os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(dir, 0o750); err == nil {
			err = Make(path)
		}
	}
	if err != nil {
		return "", fmt.Errorf("the cluster secret: %w", err)
	}
	return path, nil
}

// Make creates a file with a new secret, which only its owner may read. After a crash the file is
// complete or absent.
func Make(path string) error {
	fresh := path + ".new"
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(New())
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err == nil {
		var dir *os.File
		if dir, err = os.Open(filepath.Dir(path)); err == nil {
			err = errors.Join(dir.Sync(), dir.Close())
		}
	}
	return err
}
