package main

import (
	"io"
	"os"
	"strings"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// passwordEnv is the environment variable with the password of --user, if --user does not contain
// the password.
const passwordEnv = "TIDEMARK_PASSWORD"

// credentials returns the name and the password of --user. They are empty without --user.
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

// maxPasswordBytes limits a password in a file. bcrypt accepts 72 bytes.
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
