package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// commitDigits is the number of digits of a commit in versions. It is fixed: git would take more or
// fewer, depending on how much of the history the clone has.
const commitDigits = 12

// source is the clone that a release is made from.
type source struct {
	root     string    // its top folder
	commit   string    // HEAD
	when     time.Time // of the commit, in UTC
	describe string    // the tag and the commits since; without a tag the commit; "-dirty" if changed
}

// readSource describes the clone that holds the working directory.
func readSource(ctx context.Context) (source, error) {
	var s source
	var seconds string
	for _, question := range []struct {
		into *string
		git  []string
	}{
		{&s.root, []string{"rev-parse", "--show-toplevel"}},
		{&s.commit, []string{"rev-parse", "HEAD"}},
		{&seconds, []string{"-c", "log.showSignature=false", "log", "-1", "--format=%ct"}},
		{&s.describe, []string{"describe", "--tags", "--always", "--dirty", "--match", "v[0-9]*",
			"--abbrev=" + strconv.Itoa(commitDigits)}},
	} {
		answer, err := output(ctx, s.root, nil, "git", question.git...)
		if err != nil {
			return source{}, err
		}
		*question.into = answer
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return source{}, fmt.Errorf("git: the time of commit %s is %q", s.commit, seconds)
	}
	s.when = time.Unix(unix, 0).UTC()
	return s, nil
}

// releasable returns why the clone cannot be released as this version, and nil if it can.
func (s source) releasable(ctx context.Context, v version) error {
	changed, err := output(ctx, s.root, nil, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("the clone differs from its commit: commit or remove these first, or make "+
			"a snapshot (SNAPSHOT=1):\n%s", changed)
	}
	tagged, err := output(ctx, s.root, nil, "git", "rev-parse", "--verify", "--quiet",
		"refs/tags/"+v.String()+"^{commit}")
	if err != nil {
		return fmt.Errorf("there is no tag %s: make it, or make a snapshot (SNAPSHOT=1)", v)
	}
	if tagged != s.commit {
		return fmt.Errorf("tag %s is commit %s, and HEAD is %s: check out the tag, or make a "+
			"snapshot (SNAPSHOT=1)", v, tagged[:commitDigits], s.commit[:commitDigits])
	}
	changelog, err := os.ReadFile(filepath.Join(s.root, changelogFile))
	if err != nil {
		return err
	}
	_, err = releaseNotes(string(changelog), v)
	return err
}

// output runs a program and returns what it prints, without the line break at the end. What it
// prints to its standard error becomes the error.
func output(ctx context.Context, dir string, env []string, name string, args ...string,
) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		return strings.TrimRight(string(out), "\n"), nil
	}
	command := name + " " + strings.Join(args, " ")
	if said := strings.TrimSpace(stderr.String()); said != "" {
		err = errors.New(said)
	}
	return "", fmt.Errorf("%s: %w", command, err)
}
