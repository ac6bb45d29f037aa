package rpc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// A newer stream waits for the delivery in progress on the older one, and from then on the older
// one delivers nothing. It may still bring responses.
func TestNewerStreamFencesOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		enter := make(chan string, 10)
		leave := make(chan struct{})
		serveBatch(t, n, "s:1", BatchServerConfig{Handle: func(client uint64, batch []*kvpb.Request,
			reply func(*kvpb.Response)) {
			enter <- string(batch[0].GetGet().Key)
			<-leave
			echoAll(client, batch, reply)
		}})
		dialer := n.dialer(t, "c")
		older, _ := openConn(t, dialer, "s:1")
		newer, _ := openConn(t, dialer, "s:1")
		other, _ := openConn(t, dialer, "s:1")
		send := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		send(older.Send(&kvpb.BatchRequest{Hello: hello(1, 1), Requests: []*kvpb.Request{request(1)}}))
		send(older.Send(&kvpb.BatchRequest{Requests: []*kvpb.Request{request(2)}}))
		if key := <-enter; key != "1" {
			t.Fatal(key)
		}
		send(newer.Send(&kvpb.BatchRequest{Hello: hello(1, 2), Requests: []*kvpb.Request{request(3)}}))
		synctest.Wait()
		if len(enter) != 0 {
			t.Fatalf("%q was delivered while a request of the older stream was", <-enter)
		}
		// Another client does not wait.
		send(other.Send(&kvpb.BatchRequest{Hello: hello(2, 1), Requests: []*kvpb.Request{request(4)}}))
		if key := <-enter; key != "4" {
			t.Fatal(key)
		}
		close(leave)
		if r, err := older.Recv(); err != nil || r.Responses[0].Id != 1 {
			t.Fatal(r, err)
		}
		if _, err := older.Recv(); status.Code(err) != codes.Aborted ||
			!contains(err, "fenced off by stream 2") {
			t.Fatal(err)
		}
		if r, err := newer.Recv(); err != nil || r.Responses[0].Id != 3 {
			t.Fatal(r, err)
		}
		if key := <-enter; key != "3" || len(enter) != 0 {
			t.Fatal(key)
		}
		// An older stream that comes late, even when the newer one is gone, is refused.
		send(newer.CloseSend())
		_ = lastError(newer)
		synctest.Wait()
		for _, number := range []uint64{1, 2} {
			late, _ := openConn(t, dialer, "s:1")
			send(late.Send(&kvpb.BatchRequest{Hello: hello(1, number),
				Requests: []*kvpb.Request{request(5)}}))
			if err := lastError(late); status.Code(err) != codes.Aborted {
				t.Fatal(err)
			}
		}
	})
}

// Streams of one client race with one another. Whatever happens, deliveries never overlap, and
// their stream numbers never fall.
func TestStreamFencingRace(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			s := newClients()
			var group sync.WaitGroup
			inside := false
			highest := uint64(0)
			delivered := 0
			for number := uint64(1); number <= 30; number++ {
				open := time.Duration(r.IntN(50)) * time.Millisecond
				group.Go(func() {
					time.Sleep(open)
					turn, err := s.open(hello(1, number), 100)
					if err != nil {
						if status.Code(err) != codes.Aborted {
							t.Error(err)
						}
						return
					}
					defer s.close(turn)
					for range 5 {
						time.Sleep(time.Millisecond)
						if err := turn.deliver(t.Context(), number, func() {
							if inside {
								t.Error("two deliveries at a time")
							}
							inside = true
							if number < highest {
								t.Errorf("stream %d delivers after stream %d", number, highest)
							}
							highest = number
							delivered++
							time.Sleep(3 * time.Millisecond)
							inside = false
						}); err != nil {
							return
						}
					}
				})
			}
			group.Wait()
			if highest == 0 || delivered < 5 || s.streams != 0 {
				t.Fatalf("highest %d, %d delivered, %d streams open", highest, delivered, s.streams)
			}
		})
	}
}

// Clients without streams are remembered for a while, and no more of them than the limit.
func TestClientsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newClients()
		visit := func(client, number uint64) error {
			turn, err := s.open(hello(client, number), 1)
			if err == nil {
				s.close(turn)
			}
			return err
		}
		if err := errors.Join(visit(1, 5), visit(2, 5)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(clientMemory - time.Second)
		if err := visit(1, 5); status.Code(err) != codes.Aborted {
			t.Fatal(err)
		}
		if err := visit(1, 6); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := visit(3, 1); err != nil {
			t.Fatal(err)
		}
		if len(s.known) != 2 || s.known[2] != nil { // 1 came back, 2 is forgotten
			t.Fatal(fmt.Sprint(s.known))
		}
		for client := range uint64(maxIdleClients + 100) {
			if err := visit(client+10, 1); err != nil {
				t.Fatal(err)
			}
		}
		if len(s.known) != maxIdleClients || s.idle.Len() != maxIdleClients {
			t.Fatalf("%d known, %d idle", len(s.known), s.idle.Len())
		}
	})
}
