package command

import (
	"encoding/binary"
	"errors"
)

// EncodeEntry encodes an entry. A single command is encoded without a group.
func EncodeEntry(commands [][]byte) []byte {
	if len(commands) == 1 {
		return commands[0]
	}
	size := 1
	for _, c := range commands {
		size += binary.MaxVarintLen32 + len(c)
	}
	data := append(make([]byte, 0, size), groupFormat)
	for _, c := range commands {
		data = append(binary.AppendUvarint(data, uint64(len(c))), c...)
	}
	return data
}

// Each calls f with each command of an entry, in its order.
func Each(data []byte, f func([]byte) error) error {
	if len(data) == 0 || data[0] != groupFormat {
		return f(data)
	}
	for rest := data[1:]; len(rest) > 0; {
		size, n := binary.Uvarint(rest)
		if n <= 0 || size == 0 || size > uint64(len(rest)-n) {
			return errors.New("a group of commands is malformed")
		}
		command := rest[n : n+int(size)]
		if command[0] == groupFormat {
			return errors.New("a group of commands holds another one")
		}
		if err := f(command); err != nil {
			return err
		}
		rest = rest[n+int(size):]
	}
	return nil
}
