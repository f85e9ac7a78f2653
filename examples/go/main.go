// Tensors added up from several goroutines at once, matched by their names.
//
//	CGO_CFLAGS=-I/path/to/include CGO_LDFLAGS=-L/path/to/lib go build -o all_reduce .
//	carole run -n 4 -- ./all_reduce
package main

import (
	"fmt"
	"os"
)

const tensors = 4

func run() error {
	session, err := Join()
	if err != nil {
		return err
	}
	results := make(chan error, tensors)
	for i := 0; i < tensors; i++ {
		go func(i int) {
			tensor := make([]float32, 100*i+1)
			for j := range tensor {
				tensor[j] = float32(session.Rank + i)
			}
			err := session.Sum(fmt.Sprintf("layer/%d", i), tensor)
			want := float32(session.Size*(session.Size-1)/2 + i*session.Size)
			for _, value := range tensor {
				if err == nil && value != want {
					err = fmt.Errorf("layer %d: %g, not %g", i, value, want)
				}
			}
			results <- err
		}(i)
	}
	for i := 0; i < tensors; i++ {
		if err := <-results; err != nil {
			return err
		}
	}
	if session.Rank == 0 {
		fmt.Printf("all_reduce: %d ranks, %d tensors at once\n", session.Size, tensors)
	}
	if err := session.Barrier(); err != nil {
		return err
	}
	return session.Leave()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
