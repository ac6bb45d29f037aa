package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// cluster has three servers. Each is a core server and a data node.
type cluster struct {
	addresses []string
	processes []*process.Process
	client    *kv.Client
}

// newCluster starts the servers. They run on the given processors; nil: on all.
func newCluster(o options, processors []int) (*cluster, error) {
	all, err := process.FreeAddresses(6)
	if err != nil {
		return nil, err
	}
	c := &cluster{addresses: all[:3]}
	for i, address := range c.addresses {
		name := "server" + strconv.Itoa(i+1)
		p, err := process.Start(process.Config{Name: name, Path: o.binary,
			Args: []string{"start", "--dir", filepath.Join(o.dir, name), "--listen", address, "--core",
				strings.Join(c.addresses, ","), "--http", all[3+i], "--memory-limit",
				strconv.FormatInt(o.memory, 10)},
			Log: filepath.Join(o.dir, name+".log"), Processors: processors})
		if err != nil {
			c.kill()
			return nil, err
		}
		c.processes = append(c.processes, p)
	}
	return c, nil
}

// open opens a client, and waits until the cluster is ready and has all its nodes.
func (c *cluster) open(ctx context.Context) (*kv.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		client, err := kv.Open(ctx, c.addresses)
		if err == nil {
			var status admin.Status
			var nodes []admin.NodeInfo
			if status, err = admin.New(client).Status(ctx); err == nil && status.Ready {
				nodes, err = admin.New(client).Nodes(ctx)
			}
			if len(nodes) == len(c.addresses) {
				c.client = client
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

// terms returns the terms of the leaders of all partitions.
func (c *cluster) terms(ctx context.Context) (map[uint64]uint64, error) {
	all := make(map[uint64]uint64)
	for _, name := range []string{"flood", "modest", "low"} {
		partitions, err := admin.New(c.client).Partitions(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, p := range partitions {
			all[p.ID] = p.Term
		}
	}
	return all, nil
}

// check returns an error unless all servers run and use no more memory than their limit.
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

// memory describes the memory use of the servers.
func (c *cluster) memory() string {
	var all []string
	for _, p := range c.processes {
		all = append(all, fmt.Sprintf("%d", resident(p)>>20))
	}
	return strings.Join(all, ", ") + " MiB"
}

// processorSeconds returns the processor time that the servers have used. It is 0 if the system
// does not report it.
func (c *cluster) processorSeconds() (seconds float64) {
	for _, p := range c.processes {
		if u, err := p.Usage(); err == nil {
			seconds += u.CPUSeconds()
		}
	}
	return seconds
}

// resident returns the resident memory of a process. It is 0 if the system does not report it.
func resident(p *process.Process) int64 {
	u, err := p.Usage()
	if err != nil {
		return 0
	}
	return u.ResidentBytes
}

// kill ends the servers.
func (c *cluster) kill() {
	for _, p := range c.processes {
		_ = p.Kill()
	}
}
