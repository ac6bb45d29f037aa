package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemarkdb/tidemark/bench/kvtarget"
	"github.com/tidemarkdb/tidemark/bench/proof/process"
	"github.com/tidemarkdb/tidemark/kv"
)

const (
	tidemarkNodes    = 3
	tidemarkReplicas = 3
)

// tidemarkName is the subject of a keyspace with that many hash partitions.
func tidemarkName(partitions int) string {
	if partitions == 1 {
		return "Tidemark, 1 partition"
	}
	return fmt.Sprintf("Tidemark, %d partitions", partitions)
}

// rangeName is the subject of a keyspace that keeps its keys in order in that many partitions.
func rangeName(partitions int) string {
	return fmt.Sprintf("Tidemark, %d range partitions", partitions)
}

// evenly cuts the keys that bench makes into that many parts: a prefix, and hexadecimal digits that are all as likely.
func evenly(partitions int) [][]byte {
	var at [][]byte
	for i := 1; i < partitions; i++ {
		at = append(at, fmt.Appendf(nil, "user%04x", i*0x10000/partitions))
	}
	return at
}

// tidemarkCluster is one core server and three data nodes, with one keyspace for each number of partitions.
type tidemarkCluster struct {
	processes []*process.Process
	// admin are the HTTP addresses of the processes.
	admin     []string
	client    *kv.Client
	keyspaces []subject
}

// tidemarkVersion also proves that the program is there and starts.
func tidemarkVersion(binary string) (string, error) {
	if _, err := os.Stat(binary); err != nil {
		return "", fmt.Errorf("no Tidemark to measure: make it with `make build`, or name it with -tidemark: %w", err)
	}
	output, err := exec.Command(binary, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", binary, err)
	}
	line, _, _ := strings.Cut(string(output), "\n")
	return strings.TrimSpace(line), nil
}

// startTidemark starts the servers in fresh directories below dir, and makes the keyspaces.
func startTidemark(ctx context.Context, binary, dir string) (*tidemarkCluster, error) {
	addresses, err := process.FreeAddresses(2 * (1 + tidemarkNodes))
	if err != nil {
		return nil, err
	}
	listen, admin := addresses[:1+tidemarkNodes], addresses[1+tidemarkNodes:]
	core := listen[0]
	cluster := &tidemarkCluster{admin: admin}
	for i := range 1 + tidemarkNodes {
		name, roles := "core", "core"
		if i > 0 {
			name, roles = fmt.Sprintf("node%d", i), "node"
		}
		server, err := process.Start(process.Config{
			Name: "Tidemark " + name,
			Path: binary,
			Args: []string{"start", "--dir", filepath.Join(dir, name), "--listen", listen[i], "--core", core, "--roles", roles, "--http", admin[i]},
			Log:  filepath.Join(dir, name+".log"),
		})
		if err != nil {
			return nil, errors.Join(err, cluster.close())
		}
		cluster.processes = append(cluster.processes, server)
	}
	if err := cluster.wait(ctx, admin); err != nil {
		return nil, errors.Join(err, cluster.close())
	}
	if err := cluster.makeKeyspaces(ctx, listen[1:]); err != nil {
		return nil, errors.Join(err, cluster.close())
	}
	return cluster, nil
}

// makeKeyspaces opens one client, as an application would, and makes one keyspace for each number of partitions.
func (c *tidemarkCluster) makeKeyspaces(ctx context.Context, endpoints []string) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	var err error
	if c.client, err = kv.Open(ctx, endpoints); err != nil {
		return err
	}
	for _, partitions := range everyPartitions {
		keyspace, err := c.client.CreateKeyspace(ctx, fmt.Sprintf("bench%d", partitions), kv.Hash(partitions), kv.Replicas(tidemarkReplicas))
		if err != nil {
			return err
		}
		c.keyspaces = append(c.keyspaces, subject{name: tidemarkName(partitions), target: kvtarget.New(keyspace), classify: kvtarget.Classify})
	}
	// What is to be scanned in order belongs into a keyspace that is in order, as everything in etcd is: there a scan of 100 rows
	// asks one partition, or two. Over hash partitions it has to ask all.
	for _, partitions := range rangePartitions {
		keyspace, err := c.client.CreateKeyspace(ctx, fmt.Sprintf("ordered%d", partitions), kv.Range(evenly(partitions)...), kv.Replicas(tidemarkReplicas))
		if err != nil {
			return err
		}
		c.keyspaces = append(c.keyspaces, subject{name: rangeName(partitions), target: kvtarget.New(keyspace), classify: kvtarget.Classify, only: scanMany})
	}
	return nil
}

// profile writes the processor profile of each server over the given time below dir.
func (c *tidemarkCluster) profile(ctx context.Context, dir string, d time.Duration) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, address := range c.admin {
		group.Go(func() error {
			url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", address, max(int(d.Seconds()), 1))
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return err
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("%s answers %s", url, response.Status)
			}
			file, err := os.Create(filepath.Join(dir, strings.ReplaceAll(c.processes[i].Name(), " ", "-")+".pprof"))
			if err != nil {
				return err
			}
			_, err = io.Copy(file, response.Body)
			return errors.Join(err, file.Close())
		})
	}
	return group.Wait()
}

// wait asks every server whether it is ready.
func (c *tidemarkCluster) wait(ctx context.Context, admin []string) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	for i, address := range admin {
		url := "http://" + address + "/readyz"
		if err := process.Until(ctx, c.processes[i].Name()+" is ready", 50*time.Millisecond, func(ctx context.Context) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return err
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("%s answers %s", url, response.Status)
			}
			return nil
		}, c.processes...); err != nil {
			return err
		}
	}
	return nil
}

func (c *tidemarkCluster) subjects() []subject { return c.keyspaces }

func (c *tidemarkCluster) servers() []*process.Process { return c.processes }

// prepare has nothing to put right: the SDK follows the leaders by itself.
func (c *tidemarkCluster) prepare(context.Context) error { return nil }

func (c *tidemarkCluster) close() error {
	var err error
	if c.client != nil {
		err = c.client.Close()
	}
	return errors.Join(err, killAll(c.processes))
}
