package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
)

// writeFile writes a snapshot of an etcd with s.n keys.
func writeFile(ctx context.Context, s *settings) error {
	began := time.Now()
	db, err := bbolt.Open(s.to, 0o600, &bbolt.Options{NoSync: true, NoFreelistSync: true})
	if err != nil {
		return err
	}
	for from := 0; from < s.n && err == nil; from += 10_000 {
		if err = ctx.Err(); err == nil {
			err = db.Update(func(tx *bbolt.Tx) error { return s.fill(tx, from) })
		}
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	file, err := os.OpenFile(s.to, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, file)
	if err == nil {
		_, err = file.Write(sum.Sum(nil))
	}
	step(fmt.Sprintf("a snapshot of %d keys and %d MB", s.n, size>>20), began)
	return err
}

func (s *settings) fill(tx *bbolt.Tx, from int) error {
	b, err := tx.CreateBucketIfNotExists([]byte("key"))
	if err != nil {
		return err
	}
	b.FillPercent = 1
	random := make([]byte, 2*s.value)
	_, _ = rand.Read(random)
	for i := from; i < min(from+10_000, s.n); i++ {
		at := int64(i) + 2
		start := mathrand.IntN(s.value + 1)
		data, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte(key(i)), CreateRevision: at,
			ModRevision: at, Version: 1, Value: random[start : start+s.value]})
		if err != nil {
			return err
		}
		name := append(binary.BigEndian.AppendUint64(nil, uint64(at)), '_')
		if err := b.Put(binary.BigEndian.AppendUint64(name, 0), data); err != nil {
			return err
		}
	}
	return nil
}

// keys measures reads and writes of the keys that writeFile wrote.
func keys(ctx context.Context, s *settings) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	any := func() int { return mathrand.IntN(s.n) }
	value := string(bytes.Repeat([]byte("x"), s.value))
	if err := latency(ctx, "get", 2000, func(int) error {
		r, err := client.Get(ctx, key(any()))
		if err == nil && len(r.Kvs) != 1 {
			err = errors.New("a key is not there")
		}
		return err
	}); err != nil {
		return err
	}
	if err := latency(ctx, "put", 2000, func(int) error {
		_, err := client.Put(ctx, key(any()), value)
		return err
	}); err != nil {
		return err
	}
	if err := latency(ctx, "range of 1,000 keys", 100, func(int) error {
		i := any()
		_, err := client.Get(ctx, key(i), clientv3.WithRange(key(i+1000)))
		return err
	}); err != nil {
		return err
	}
	// The answer has the number of all matching keys, so the server counts all keys.
	if err := latency(ctx, "first 1,000 of all keys from one on", 20, func(int) error {
		_, err := client.Get(ctx, key(any()), clientv3.WithFromKey(), clientv3.WithLimit(1000))
		return err
	}); err != nil {
		return err
	}
	return latency(ctx, "count of all keys", 1, func(int) error {
		r, err := client.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil {
			fmt.Printf("%d keys\n", r.Count)
		}
		return err
	})
}
