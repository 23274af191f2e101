// Builds and drops trees in the heap of the Boehm collector: gcc -O2 trees_bdwgc.c -lgc
#include <gc.h>
#include <stdio.h>

struct node {
  struct node* left;
  struct node* right;
};

static struct node* tree(int depth) {
  struct node* root = GC_MALLOC(sizeof *root);
  if (depth > 0) {
    root->left = tree(depth - 1);
    root->right = tree(depth - 1);
  }
  return root;
}

static long count(const struct node* root) {
  return root == NULL ? 0 : 1 + count(root->left) + count(root->right);
}

int main(void) {
  GC_INIT();
  const struct node* kept = tree(17);
  long nodes = 0;
  for (int i = 0; i < 200; ++i) {
    nodes += count(tree(13));
  }
  printf("%ld %ld\n", nodes, count(kept));
  return 0;
}
