package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tidemarkdb/tidemark/bench"
	"github.com/tidemarkdb/tidemark/bench/proof/process"
)

const (
	etcdName    = "etcd"
	etcdMembers = 3
	// etcdConnections is the number of connections of the client, all to the leader. This number is
	// the best for etcd here.
	etcdConnections = 8
	// etcdTransaction is the number of puts in one transaction of the load phase. etcd's own limit is
	// 128.
	etcdTransaction = 100
)

// etcdCluster is three members of etcd with default settings, except for a larger space quota.
type etcdCluster struct {
	members   []*process.Process
	endpoints []string
	clients   []*clientv3.Client
	leader    string
	next      atomic.Uint64
}

// etcdVersion returns the first line of `etcd --version`, or an error that says how to get etcd.
func etcdVersion() (string, error) {
	path, err := exec.LookPath("etcd")
	if err != nil {
		return "", fmt.Errorf("no etcd to compare with: "+
			"install it with `apt-get install etcd-server`: %w", err)
	}
	output, err := exec.Command(path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	line, _, _ := strings.Cut(string(output), "\n")
	return strings.TrimSpace(line), nil
}

// startETCD starts the members in fresh directories below dir and waits until one leads.
func startETCD(ctx context.Context, dir string) (*etcdCluster, error) {
	addresses, err := process.FreeAddresses(2 * etcdMembers)
	if err != nil {
		return nil, err
	}
	clientAddresses, peerAddresses := addresses[:etcdMembers], addresses[etcdMembers:]
	var initial []string
	for i, address := range peerAddresses {
		initial = append(initial, fmt.Sprintf("m%d=http://%s", i+1, address))
	}
	cluster := &etcdCluster{endpoints: clientAddresses}
	for i := range etcdMembers {
		name := fmt.Sprintf("m%d", i+1)
		member, err := process.Start(process.Config{
			Name: "etcd " + name,
			Path: "etcd",
			Args: []string{
				"--name", name,
				"--data-dir", filepath.Join(dir, name),
				"--listen-client-urls", "http://" + clientAddresses[i],
				"--advertise-client-urls", "http://" + clientAddresses[i],
				"--listen-peer-urls", "http://" + peerAddresses[i],
				"--initial-advertise-peer-urls", "http://" + peerAddresses[i],
				"--initial-cluster", strings.Join(initial, ","),
				"--initial-cluster-token", "bench-compare",
				"--initial-cluster-state", "new",
				"--quota-backend-bytes", "8589934592",
				"--logger", "zap", "--log-level", "warn",
			},
			Log: filepath.Join(dir, name+".log"),
		})
		if err != nil {
			return nil, errors.Join(err, cluster.close())
		}
		cluster.members = append(cluster.members, member)
	}
	if err := cluster.connect(ctx); err != nil {
		return nil, errors.Join(err, cluster.close())
	}
	return cluster, nil
}

// prepare is called before each measurement, because the leader may have changed.
func (c *etcdCluster) prepare(ctx context.Context) error { return c.connect(ctx) }

func (c *etcdCluster) subjects() []subject {
	return []subject{{name: etcdName, driver: inProcess{target: c}}}
}

// connect finds the leader and opens all connections to it. A later call does so only if the leader
// has changed.
func (c *etcdCluster) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return process.Until(ctx, "etcd has a leader", 50*time.Millisecond,
		func(ctx context.Context) error {
			leader, err := c.findLeader(ctx)
			if err != nil {
				return err
			}
			if leader == c.leader {
				return nil
			}
			c.disconnect()
			for range etcdConnections {
				client, err := dialETCD(leader)
				if err != nil {
					return err
				}
				c.clients = append(c.clients, client)
			}
			c.leader = leader
			return nil
		}, c.members...)
}

func dialETCD(endpoint string) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{"http://" + endpoint},
		DialTimeout: 5 * time.Second,
		Logger:      zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", endpoint, err)
	}
	return client, nil
}

// findLeader asks every member which one leads, and returns the client address of the member that
// reports itself as the leader.
func (c *etcdCluster) findLeader(ctx context.Context) (string, error) {
	var last error
	for _, endpoint := range c.endpoints {
		leads, err := leadsETCD(ctx, endpoint)
		if leads {
			return endpoint, nil
		}
		if err != nil {
			last = err
		}
	}
	return "", fmt.Errorf("no member says that it leads: %w", last)
}

func leadsETCD(ctx context.Context, endpoint string) (bool, error) {
	client, err := dialETCD(endpoint)
	if err != nil {
		return false, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	status, err := client.Status(ctx, endpoint)
	if err != nil {
		return false, fmt.Errorf("status of etcd at %s: %w", endpoint, err)
	}
	return status.Leader == status.Header.MemberId, nil
}

func (c *etcdCluster) disconnect() {
	for _, client := range c.clients {
		// The connection ends in any case, and no call is in flight.
		_ = client.Close()
	}
	c.clients, c.leader = nil, ""
}

func (c *etcdCluster) close() error {
	c.disconnect()
	return killAll(c.members)
}

func (c *etcdCluster) servers() []*process.Process { return c.members }

// client returns the connections in turn.
func (c *etcdCluster) client() *clientv3.Client {
	return c.clients[c.next.Add(1)%uint64(len(c.clients))]
}

// Get is linearisable, which is the client's default.
func (c *etcdCluster) Get(ctx context.Context, key []byte) error {
	response, err := c.client().Get(ctx, string(key))
	if err != nil {
		return err
	}
	if len(response.Kvs) == 0 {
		return bench.ErrNotFound
	}
	return nil
}

func (c *etcdCluster) Put(ctx context.Context, key, value []byte) error {
	_, err := c.client().Put(ctx, string(key), string(value))
	return err
}

// Scan reads keys from `from` on, at most limit of them. etcd walks its index to the end of the
// range whatever the limit is, because it counts the rest. That makes its scans slow.
func (c *etcdCluster) Scan(ctx context.Context, from []byte, limit int) (int, error) {
	response, err := c.client().Get(ctx, string(from), clientv3.WithFromKey(),
		clientv3.WithLimit(int64(limit)))
	if err != nil {
		return 0, err
	}
	return len(response.Kvs), nil
}

// Load writes the records in transactions, which is faster in etcd than puts.
func (c *etcdCluster) Load(ctx context.Context, records []bench.Record) error {
	for len(records) > 0 {
		n := min(len(records), etcdTransaction)
		operations := make([]clientv3.Op, n)
		for i, record := range records[:n] {
			operations[i] = clientv3.OpPut(string(record.Key), string(record.Value))
		}
		if _, err := c.client().Txn(ctx).Then(operations...).Commit(); err != nil {
			return fmt.Errorf("load %d records into etcd: %w", n, err)
		}
		records = records[n:]
	}
	return nil
}
