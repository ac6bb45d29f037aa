package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/hostile/honest"
	"github.com/tidemarkdb/tidemark/bench/proof/process"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// cluster is three servers, each of them a core member and a data node.
type cluster struct {
	o               options
	files           files
	addresses, http []string
	processes       []*process.Process
	// most is the highest resident memory of a server so far.
	most int64
}

func newCluster(o options, f files) (*cluster, error) {
	addresses, err := process.FreeAddresses(6)
	if err != nil {
		return nil, err
	}
	return &cluster{o: o, files: f, addresses: addresses[:3], http: addresses[3:]}, nil
}

// start starts the servers.
func (c *cluster) start() error {
	c.processes = nil
	for i, address := range c.addresses {
		name := "server" + strconv.Itoa(i+1)
		args := []string{"start", "--dir", filepath.Join(c.o.dir, name), "--listen", address, "--core",
			strings.Join(c.addresses, ","), "--http", c.http[i]}
		if c.o.secure {
			args = append(args, "--tls-cert", c.files.server.Cert, "--tls-key", c.files.server.Key,
				"--tls-ca", c.files.clientCA.Cert, "--tls-peer-ca", c.files.serverCA.Cert)
		} else {
			args = append(args, "--secret-file", c.files.secret)
		}
		p, err := process.Start(process.Config{Name: name, Path: c.o.binary, Args: args,
			Log: logOf(c.o.dir, name)})
		if err != nil {
			return err
		}
		c.processes = append(c.processes, p)
	}
	return nil
}

// open opens a client, and waits until the cluster is ready and has all its nodes.
func (c *cluster) open(ctx context.Context, config *tls.Config) (*kv.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		client, err := kv.Open(ctx, c.addresses, kv.TLS(config))
		if err == nil {
			var status admin.Status
			var nodes []admin.NodeInfo
			if status, err = admin.New(client).Status(ctx); err == nil && status.Ready {
				nodes, err = admin.New(client).Nodes(ctx)
			}
			if len(nodes) == len(c.addresses) {
				return client, nil
			}
			_ = client.Close()
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the servers are not ready: %w", err)
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// check returns an error if a server has ended, or uses more memory than it may.
func (c *cluster) check(memory int64) error {
	for _, p := range c.processes {
		if !p.Running() {
			return fmt.Errorf("%s has ended with exit code %d: %s", p.Name(), p.ExitCode(),
				p.LogTail(4000))
		}
		if has := resident(p); has > memory {
			return fmt.Errorf("%s has %d MiB of memory, more than %d MiB", p.Name(), has>>20, memory>>20)
		}
	}
	return nil
}

// memory describes the memory of the servers.
func (c *cluster) memory() string {
	var all []string
	for _, p := range c.processes {
		has := resident(p)
		c.most = max(c.most, has)
		all = append(all, fmt.Sprintf("%d", has>>20))
	}
	return strings.Join(all, ", ") + " MiB"
}

// resident is the resident memory of a process; 0 if the system does not report it.
func resident(p *process.Process) int64 {
	u, err := p.Usage()
	if err != nil {
		return 0
	}
	return u.ResidentBytes
}

// restartAndVerify restarts all servers, and checks that every acknowledged write is there.
func (c *cluster) restartAndVerify(ctx context.Context, load *honest.Load,
	config *tls.Config) error {
	for _, p := range c.processes {
		if err := p.Stop(time.Minute); err != nil {
			return fmt.Errorf("stop: %w", err)
		}
	}
	if err := c.start(); err != nil {
		return err
	}
	client, err := c.open(ctx, config)
	if err != nil {
		return err
	}
	verifying, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return errors.Join(load.Verify(verifying, client.Keyspace("honest")), client.Close())
}

// kill kills the servers that run.
func (c *cluster) kill() {
	for _, p := range c.processes {
		_ = p.Kill()
	}
}
