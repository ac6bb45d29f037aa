package replica

import (
	"reflect"
	"testing"
)

// mostFields is how many fields Replica.mu guards at most: what one state machine consists of. What
// grows beyond that wants a room of its own.
const mostFields = 15

func TestTheLockGuardsFewFields(t *testing.T) {
	mu, _ := reflect.TypeFor[Replica]().FieldByName("mu")
	if n := mu.Type.NumField() - 1; n > mostFields { // the first is the lock
		t.Errorf("Replica.mu guards %d fields, at most %d are meant to be", n, mostFields)
	}
}
