package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
	"github.com/tidemarkdb/tidemark/bench/proof/reference"
	"github.com/tidemarkdb/tidemark/kv/coord"
)

const members = 3

// subject is a running service with its servers.
type subject struct {
	name      string
	endpoints []string
	servers   []*process.Process
	// admin are the addresses for profiles, or nil.
	admin []string
	close func() error

	// direct is set if the clients are those of kv/coord. One such client is enough.
	direct bool

	clients []*clientv3.Client
	hangUp  []func() error
	leader  string
	next    atomic.Uint64
	warm    bool
}

func startEtcd(ctx context.Context, _ *settings, dir string) (*subject, error) {
	dir = filepath.Join(dir, "etcd")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	cluster, err := reference.Start(ctx, reference.Options{Members: members, Dir: dir,
		Args: []string{"--quota-backend-bytes", "8589934592"}})
	if err != nil {
		return nil, err
	}
	x := &subject{name: "etcd", endpoints: cluster.Endpoints()}
	for i := range members {
		x.servers = append(x.servers, cluster.Member(i))
	}
	x.close = func() error {
		x.disconnect()
		return cluster.Close()
	}
	return x, nil
}

func startTidemark(ctx context.Context, s *settings, dir string) (*subject, error) {
	all, err := process.FreeAddresses(2 * members)
	if err != nil {
		return nil, err
	}
	addresses := all[:members]
	x := &subject{name: "tidemark", endpoints: addresses, admin: all[members:]}
	x.close = func() error {
		x.disconnect()
		var errs []error
		for _, p := range x.servers {
			errs = append(errs, p.Kill())
		}
		return errors.Join(errs...)
	}
	for i, address := range addresses {
		name := fmt.Sprintf("tidemark%d", i+1)
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return nil, err
		}
		server, err := process.Start(process.Config{Name: name, Path: s.tidemark,
			Args: []string{"start", "--dir", filepath.Join(dir, name), "--listen", address,
				"--core", strings.Join(addresses, ","), "--roles", "core", "--http", x.admin[i]},
			Log: filepath.Join(dir, name+".log")})
		if err != nil {
			return nil, errors.Join(err, x.close())
		}
		x.servers = append(x.servers, server)
	}
	return x, nil
}

// connect opens a number of connections to the leader, if they are not open already.
func (x *subject) connect(ctx context.Context, connections int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return process.Until(ctx, x.name+" has a leader", 50*time.Millisecond,
		func(ctx context.Context) error {
			leader, err := x.findLeader(ctx)
			if err != nil || leader == x.leader {
				return err
			}
			x.disconnect()
			x.leader = leader
			if x.direct {
				return x.connectDirectly(ctx)
			}
			for range connections {
				client, err := dial(leader)
				if err != nil {
					return err
				}
				x.clients, x.hangUp = append(x.clients, client), append(x.hangUp, client.Close)
			}
			return nil
		}, x.servers...)
}

func (x *subject) findLeader(ctx context.Context) (string, error) {
	var errs []error
	for _, endpoint := range x.endpoints {
		client, err := dial(endpoint)
		if err != nil {
			return "", err
		}
		limited, cancel := context.WithTimeout(ctx, 2*time.Second)
		status, err := client.Status(limited, endpoint)
		cancel()
		_ = client.Close()
		if err == nil && status.Leader == status.Header.MemberId {
			return endpoint, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("no member leads: %w", errors.Join(errs...))
}

func dial(endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second,
		Logger: zap.NewNop()})
}

// connectDirectly opens a client of kv/coord, and waits until it calls the leader past gRPC.
func (x *subject) connectDirectly(ctx context.Context) error {
	client, err := coord.Connect(ctx, x.endpoints)
	if err != nil {
		return err
	}
	x.clients, x.hangUp = []*clientv3.Client{client.Etcd()}, append(x.hangUp, client.Close)
	return process.Until(ctx, "a direct connection to "+x.leader, 50*time.Millisecond,
		func(ctx context.Context) error {
			if _, err := client.Etcd().Get(ctx, "none"); err != nil {
				return err
			}
			if at := client.Direct(); at != x.leader {
				return fmt.Errorf("calls go to %q", at)
			}
			return nil
		}, x.servers...)
}

func (x *subject) disconnect() {
	for _, hangUp := range x.hangUp {
		_ = hangUp()
	}
	x.clients, x.hangUp, x.leader = nil, nil, ""
}

// directly returns a subject with the same servers and a client of kv/coord.
func (x *subject) directly() *subject {
	d := &subject{name: directName, endpoints: x.endpoints, servers: x.servers, admin: x.admin,
		direct: true, warm: true}
	d.close = func() error {
		d.disconnect()
		return nil
	}
	return d
}

// directName is the name of the subject with Tidemark's servers and a client of kv/coord.
const directName = "tidemark by kv/coord"

// client returns the connections in turn.
func (x *subject) client() *clientv3.Client {
	return x.clients[x.next.Add(1)%uint64(len(x.clients))]
}

// used returns the processor seconds and the resident memory of the servers.
func (x *subject) used() (seconds float64, resident uint64, err error) {
	for _, p := range x.servers {
		u, err := p.Usage()
		if err != nil {
			return 0, 0, err
		}
		seconds += u.CPUSeconds()
		resident += uint64(u.ResidentBytes)
	}
	return seconds, resident, nil
}
