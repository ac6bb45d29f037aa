//go:build unix

package main

import (
	"crypto/tls"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/porttest"
)

// asProgram is set in the environment of a process that is this test's binary and shall be the
// program.
const asProgram = "TIDEMARK_TEST_AS_PROGRAM"

// A server's files are for its own user and group. SIGHUP does not end it, but has it read its
// certificates again, also for HTTP.
func TestServerProcess(t *testing.T) {
	dir, address, http := t.TempDir(), porttest.Address(t), porttest.Address(t)
	cert, key := certificate(t, dir)
	data := filepath.Join(dir, "data")
	cmd := exec.Command(os.Args[0], "start", "--dir", data, "--listen", address, "--core", address,
		"--http", http,
		"--tls-cert", cert, "--tls-key", key, "--tls-ca", cert)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, words := newScreen(), newScreen()
	cmd.Stdout, cmd.Stderr = out, words
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan int, 1)
	go func() {
		_ = cmd.Wait()
		ended <- cmd.ProcessState.ExitCode()
	}()
	s := &server{t: t, out: out, err: words, stop: func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}, ended: ended}
	defer s.end()
	s.says(`tidemark: ready on`)

	files := 0
	err := filepath.WalkDir(data, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil // a log file that was done with meanwhile
		}
		info, err := entry.Info()
		if err != nil {
			return nil
		}
		files++
		if mode := info.Mode().Perm(); mode&0o027 != 0 {
			t.Errorf("%s: %v", path, mode)
		}
		return nil
	})
	if err != nil || files < 10 {
		t.Errorf("%d files: %v", files, err)
	}

	shown := func() string {
		conn, err := tls.Dial("tcp", http, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return string(conn.ConnectionState().PeerCertificates[0].Raw)
	}
	before := shown()
	certificate(t, dir)
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	limit := time.Now().Add(time.Minute)
	for shown() == before {
		if time.Now().After(limit) {
			t.Fatal("the certificate is still the former one")
		}
	}
	select {
	case code := <-ended:
		ended <- code
		t.Fatalf("it ended with code %d: %s", code, words)
	default:
	}
	if strings.Contains(words.String(), "cannot be used") {
		t.Error(words)
	}
}
