package org.opensearch.protobufs;

/** Stands for a message of gRPC, which the k-NN plugin names and nobody sends here. */
public final class QueryContainer {
  public enum QueryContainerCase {}

  private QueryContainer() {}
}
