package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// passwordEnv is the password of --user, if that does not hold it.
const passwordEnv = "TIDEMARK_PASSWORD"

// credentials are the name and the password of --user; empty without it.
func (a *app) credentials() (name, password string, err error) {
	if a.user == "" {
		if a.passwordFile != "" {
			return "", "", exit.Usagef("--password-file: give --user as well")
		}
		return "", "", nil
	}
	name, password, given := strings.Cut(a.user, ":")
	switch {
	case given && a.passwordFile != "":
		return "", "", exit.Usagef("--user has a password, and --password-file is given; use one")
	case a.passwordFile != "":
		if password, err = a.passwordIn("--password-file", a.passwordFile); err != nil {
			return "", "", err
		}
	case !given:
		password = a.getenv(passwordEnv)
	}
	if name == "" || password == "" {
		return "", "", exit.Usagef("--user %s: give a name, and a password in a file "+
			"(--password-file), after a colon, or in %s", name, passwordEnv)
	}
	return name, password, nil
}

// maxPasswordBytes bounds a password in a file. bcrypt takes 72.
const maxPasswordBytes = 1 << 10

// passwordIn reads a password from a file, without the end of its line.
func (a *app) passwordIn(flag, file string) (string, error) {
	in := a.in
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return "", exit.Usagef("%s: %w", flag, err)
		}
		defer opened.Close()
		in = opened
	}
	text, err := io.ReadAll(io.LimitReader(in, maxPasswordBytes+1))
	password := strings.TrimRight(string(text), "\r\n")
	switch {
	case err != nil:
		return "", exit.Usagef("%s: %w", flag, err)
	case len(text) > maxPasswordBytes:
		return "", exit.Usagef("%s %s: a password has at most %d bytes", flag, file, maxPasswordBytes)
	case password == "" || strings.ContainsAny(password, "\r\n"):
		return "", exit.Usagef("%s %s: it has to hold a password, on one line", flag, file)
	}
	return password, nil
}

// tokenAge is for how long a token is taken again. It is valid for 5 minutes at least.
const tokenAge = 2 * time.Minute

// token returns what gets a token of a user for kv.Token. It is empty while authentication is not
// enabled.
func (a *app) token(name, password string) func(context.Context) (string, error) {
	var mu sync.Mutex
	var token string
	var got time.Time
	return func(ctx context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if !got.IsZero() && time.Since(got) < tokenAge {
			return token, nil
		}
		endpoints, err := a.addresses()
		if err != nil {
			return "", err
		}
		config := clientv3.Config{Endpoints: endpoints, Context: ctx, Logger: zap.NewNop()}
		if config.TLS, err = a.tls.Config(a.getenv); err != nil {
			return "", err
		}
		client, err := clientv3.New(config)
		if err != nil {
			return "", err
		}
		defer client.Close()
		r, err := client.Authenticate(ctx, name, password)
		if errors.Is(err, rpctypes.ErrAuthNotEnabled) {
			r, err = &clientv3.AuthenticateResponse{}, nil
		}
		if err != nil {
			return "", err
		}
		token, got = r.Token, time.Now()
		return token, nil
	}
}
