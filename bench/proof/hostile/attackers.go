package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/hostile/abuse"
	"github.com/tidemarkdb/tidemark/bench/proof/process"
	"github.com/tidemarkdb/tidemark/rpc/authn"
)

// The attackers run in their own process, on their own processor if there are two, and with the
// lowest priority: in reality hostile hosts bring their own processors. So the measurement shows
// the cost of the work that servers do for the attackers.

// attackFile has the attackers' task, and reportFile their report, in the directory of the run.
const (
	attackFile = "attack.json"
	reportFile = "report.json"
)

// attack is the attackers' task.
type attack struct {
	Target   abuse.Target
	Seed     uint64
	Parallel int
	Longest  time.Duration
	Duration time.Duration
	Only     string
	// Sink: attack listeners of the attackers' own process instead of the servers.
	Sink bool
	// Cert, Key and CA are files; empty without TLS.
	Cert, Key, CA string
}

// report is the attackers' report.
type report struct {
	abuse.Report
	// Violation is the text of Found.
	Violation string
}

// startAttackers starts the attackers' process.
func startAttackers(dir string, share bool, a attack) (*process.Process, error) {
	args := []string{"-attack", "-dir", dir, "-share=" + strconv.FormatBool(share)}
	b, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, attackFile), b, 0o600); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := process.Start(process.Config{Name: "attackers", Path: self, Args: args,
		Log: logOf(dir, "attackers")})
	if err != nil {
		return nil, err
	}
	// Set the priority of all threads of the process group. Later threads inherit the priority.
	if err := syscall.Setpriority(syscall.PRIO_PGRP, p.PID(), 19); err != nil {
		_ = p.Kill()
		return nil, fmt.Errorf("priority of the attackers: %w", err)
	}
	return p, nil
}

// runAttackers is the main function of the attackers' process.
func runAttackers(ctx context.Context, dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, attackFile))
	if err != nil {
		return err
	}
	var a attack
	if err := json.Unmarshal(b, &a); err != nil {
		return err
	}
	if a.Cert != "" {
		if a.Target.TLS, err = authn.LoadClientTLS(a.Cert, a.Key, a.CA); err != nil {
			return err
		}
	}
	only, err := compile(a.Only)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.Duration)
	defer cancel()
	if a.Sink {
		if err := a.useSink(ctx); err != nil {
			return err
		}
	}
	r := report{Report: abuse.Run(ctx, abuse.Config{Target: a.Target, Seed: a.Seed,
		Parallel: a.Parallel, Longest: a.Longest, Only: only.MatchString})}
	if r.Found != nil {
		r.Violation = r.Found.Error()
		r.Found = nil
	}
	if b, err = json.Marshal(r); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, reportFile), b, 0o600)
}

// useSink replaces the targets by listeners that read everything and answer nothing.
func (a *attack) useSink(ctx context.Context) error {
	for _, addresses := range [][]string{a.Target.Addresses, a.Target.HTTP} {
		for i := range addresses {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			context.AfterFunc(ctx, func() { _ = l.Close() })
			addresses[i] = l.Addr().String()
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						_, _ = io.Copy(io.Discard, conn)
						_ = conn.Close()
					}()
				}
			}()
		}
	}
	return nil
}

// reportOf waits until the attackers have ended, and returns their report.
func reportOf(dir string, p *process.Process) (abuse.Report, error) {
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		return abuse.Report{}, fmt.Errorf("the attackers go on: %s", p.LogTail(4000))
	}
	if code := p.ExitCode(); code != 0 {
		return abuse.Report{}, fmt.Errorf("the attackers ended with exit code %d: %s",
			code, p.LogTail(4000))
	}
	b, err := os.ReadFile(filepath.Join(dir, reportFile))
	if err != nil {
		return abuse.Report{}, err
	}
	var r report
	if err := json.Unmarshal(b, &r); err != nil {
		return abuse.Report{}, err
	}
	if r.Violation != "" {
		r.Found = errors.New(r.Violation)
	}
	return r.Report, nil
}
